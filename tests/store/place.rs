//! Which file it is, whose it is, and what is done to it before that is known.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use taskgate::store::embedded;
use taskgate::store::{Clock, Embedded, OpenError, Options};
use taskgate::task::TaskStore as _;

use crate::home::{Home, finish};

async fn open(path: &Path) -> Result<Embedded, OpenError> {
    Embedded::open(path.to_owned(), Options::default(), Clock::system()).await
}

async fn refusal(path: &Path) -> String {
    open(path).await.expect_err("it is refused").to_string()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
}

#[tokio::test]
async fn one_file_has_one_lock_whatever_leads_there() {
    let home = Home::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let (link, folder) = (elsewhere.path().join("link.db"), elsewhere.path().join("folder"));
    symlink(home.path(), &link).unwrap();
    symlink(home.directory.path(), &folder).unwrap();
    // The link leads nowhere as yet: the file is made where it points.
    let store = open(&link).await.expect("opened");
    finish(&store, 10).await;
    for path in [home.path(), folder.join("taskgate.db"), link.clone()] {
        let refused = refusal(&path).await;
        assert!(refused.contains("in use by another taskgate"), "{}: {refused}", path.display());
    }
    store.close().await;
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 2, "nothing is put beside the link");
    assert_eq!(embedded::check(&link).unwrap().results, 1);
}

#[tokio::test]
async fn what_is_not_ours_keeps_its_mode() {
    let home = tempfile::tempdir().unwrap();
    let (theirs, garbage) = (home.path().join("theirs.db"), home.path().join("garbage.db"));
    rusqlite::Connection::open(&theirs).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    std::fs::write(&garbage, vec![b'?'; 10_000]).unwrap();
    for path in [&theirs, &garbage] {
        set_mode(path, 0o664);
        refusal(path).await;
        assert_eq!(mode(path), 0o664, "{}", path.display());
    }
    let folder = home.path().join("folder.db");
    std::fs::create_dir(&folder).unwrap();
    set_mode(&folder, 0o755);
    for path in [folder.as_path(), Path::new("/dev/null")] {
        let refused = refusal(path).await;
        assert!(refused.contains("not a regular file"), "{refused}");
        assert!(embedded::check(path).unwrap_err().to_string().contains("not a regular file"));
    }
    assert_eq!(mode(&folder), 0o755);
    assert_eq!(mode(Path::new("/dev/null")), 0o666);
}

#[tokio::test]
async fn a_store_that_is_up_to_date_is_not_written_by_opening_it() {
    let home = Home::new();
    let store = home.open().await;
    finish(&store, 1_000).await;
    store.close().await;
    let before = std::fs::read(home.path()).unwrap();
    home.open().await.close().await;
    let after = std::fs::read(home.path()).unwrap();
    let changed: Vec<_> = (0..before.len().max(after.len())).filter(|at| before.get(*at) != after.get(*at)).collect();
    assert_eq!(changed, [0; 0], "at these places");
}
