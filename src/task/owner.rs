//! Who may see a task: one function decides, for every method and dialect.

/// How the owner of a task is decided (`[tasks] owner`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnerMode {
    /// The credential that created it, or its session; with neither, whoever holds the id.
    #[default]
    Auto,
    /// The session only.
    Session,
    /// The verified principal only.
    Principal,
    /// Whoever holds the id.
    Id,
}

/// A keyed hash of a secret: equal secrets have equal fingerprints, and nothing can be read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 16]);

/// Who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The credential it brought.
    pub credential: Option<Fingerprint>,
    /// The session it named.
    pub session: Option<Fingerprint>,
}

/// Who a task belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    mode: OwnerMode,
    creator: Identity,
    /// Made as a job without a credential: many frameworks open a session per call, so its id opens it.
    open_by_id: bool,
}

/// Whether somebody may see a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Yes.
    Granted,
    /// No; to them it does not exist.
    Denied,
    /// Only if the upstream accepts their credential on the task's session.
    IfAccepted,
}

impl Owner {
    /// The owner of a task that `creator` makes; `None` if nobody could ever own it under this mode, so that no task
    /// may be made.
    #[must_use]
    pub fn new(mode: OwnerMode, creator: Identity) -> Option<Self> {
        let ownable = match mode {
            OwnerMode::Auto | OwnerMode::Id => true,
            OwnerMode::Session => creator.session.is_some(),
            OwnerMode::Principal => false,
        };
        ownable.then_some(Self { mode, creator, open_by_id: false })
    }

    /// The same in an era without sessions: the credential stands for one.
    #[must_use]
    pub fn without_session(mode: OwnerMode, creator: Identity) -> Option<Self> {
        let ownable = match mode {
            OwnerMode::Auto | OwnerMode::Id => true,
            OwnerMode::Session => creator.credential.is_some(),
            OwnerMode::Principal => false,
        };
        ownable.then_some(Self { mode, creator: Identity { session: None, ..creator }, open_by_id: false })
    }

    /// The same for a task that is handed out as a job.
    #[must_use]
    pub fn of_job(mut self) -> Self {
        self.open_by_id = self.mode == OwnerMode::Auto && self.creator.credential.is_none();
        self
    }

    /// How it is decided.
    #[must_use]
    pub fn mode(&self) -> OwnerMode {
        self.mode
    }

    /// Who made the task.
    #[must_use]
    pub fn creator(&self) -> Identity {
        self.creator
    }

    /// Whether the id alone opens it because of [`Owner::of_job`].
    #[must_use]
    pub fn is_open_by_id(&self) -> bool {
        self.open_by_id
    }

    /// Whether `who` may read, cancel and update the task.
    #[must_use]
    pub fn admits(&self, who: &Identity) -> Access {
        let same_session = self.creator.session.is_some() && self.creator.session == who.session;
        match self.mode {
            OwnerMode::Id => Access::Granted,
            OwnerMode::Session if same_session => Access::Granted,
            // Made without a session: its credential stands for one.
            OwnerMode::Session if self.creator.session.is_none() && self.creator.credential == who.credential => {
                Access::Granted
            }
            OwnerMode::Session | OwnerMode::Principal => Access::Denied,
            OwnerMode::Auto if self.open_by_id || self.creator == Identity::default() => Access::Granted,
            OwnerMode::Auto => match (self.creator.credential, who.credential) {
                (Some(made), Some(brought)) if made == brought => Access::Granted,
                (None, None) if same_session => Access::Granted,
                _ if same_session => Access::IfAccepted,
                _ => Access::Denied,
            },
        }
    }

    /// The session whose list it stands in: only callers that can be told apart have a list.
    #[must_use]
    pub fn listed_in(&self) -> Option<Fingerprint> {
        if self.mode == OwnerMode::Session { self.creator.session } else { None }
    }

    /// The session it was made in.
    #[must_use]
    pub fn session(&self) -> Option<Fingerprint> {
        self.creator.session
    }

    /// Whether anybody can still read it once its session is gone.
    #[must_use]
    pub fn outlives_session(&self) -> bool {
        match self.mode {
            OwnerMode::Id => true,
            OwnerMode::Session | OwnerMode::Principal => false,
            OwnerMode::Auto => self.open_by_id || self.creator.session.is_none() || self.creator.credential.is_some(),
        }
    }

    /// Whom a limit per owner counts it for; `None` if callers cannot be told apart.
    #[must_use]
    pub fn counted_for(&self) -> Option<Identity> {
        (self.creator != Identity::default()).then_some(self.creator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const U: Option<Fingerprint> = Some(Fingerprint([1; 16]));
    const V: Option<Fingerprint> = Some(Fingerprint([2; 16]));
    const S1: Option<Fingerprint> = Some(Fingerprint([3; 16]));
    const S2: Option<Fingerprint> = Some(Fingerprint([4; 16]));

    fn id(credential: Option<Fingerprint>, session: Option<Fingerprint>) -> Identity {
        Identity { credential, session }
    }

    #[test]
    fn auto_follows_the_credential_then_the_session() {
        use Access::{Denied, Granted, IfAccepted};
        for (creator, who, access) in [
            (id(U, S1), id(U, S1), Granted),
            (id(U, S1), id(U, S2), Granted),
            (id(U, S1), id(U, None), Granted),
            (id(U, S1), id(V, S1), IfAccepted),
            (id(U, S1), id(None, S1), IfAccepted),
            (id(U, S1), id(V, S2), Denied),
            (id(U, S1), id(None, None), Denied),
            (id(None, S1), id(None, S1), Granted),
            (id(None, S1), id(V, S1), IfAccepted),
            (id(None, S1), id(None, S2), Denied),
            (id(None, None), id(None, None), Granted),
            (id(None, None), id(V, S2), Granted),
            (id(U, None), id(V, None), Denied),
        ] {
            let owner = Owner::new(OwnerMode::Auto, creator).unwrap();
            assert_eq!(owner.admits(&who), access, "{creator:?} {who:?}");
        }
    }

    #[test]
    fn a_job_without_a_credential_opens_by_its_id() {
        let job = |creator| Owner::new(OwnerMode::Auto, creator).unwrap().of_job();
        assert_eq!(job(id(None, S1)).admits(&id(None, S2)), Access::Granted);
        assert_eq!(job(id(U, S1)).admits(&id(None, S2)), Access::Denied);
        assert!(job(id(None, S1)).outlives_session());
        assert!(!Owner::new(OwnerMode::Auto, id(None, S1)).unwrap().outlives_session());
    }

    #[test]
    fn the_other_modes() {
        assert!(Owner::new(OwnerMode::Principal, id(U, S1)).is_none());
        assert!(Owner::new(OwnerMode::Session, id(U, None)).is_none());
        let session = Owner::new(OwnerMode::Session, id(U, S1)).unwrap().of_job();
        assert_eq!(session.admits(&id(V, S1)), Access::Granted);
        assert_eq!(session.admits(&id(U, S2)), Access::Denied);
        assert_eq!(session.listed_in(), S1);
        assert!(Owner::without_session(OwnerMode::Session, id(None, S1)).is_none());
        let alone = Owner::without_session(OwnerMode::Session, id(U, None)).unwrap().of_job();
        for (who, access) in [
            (id(U, None), Access::Granted),
            (id(U, S2), Access::Granted),
            (id(V, None), Access::Denied),
            (id(None, None), Access::Denied),
        ] {
            assert_eq!(alone.admits(&who), access, "{who:?}");
        }
        assert_eq!(alone.listed_in(), None);
        let by_id = Owner::new(OwnerMode::Id, id(U, S1)).unwrap();
        assert_eq!(by_id.admits(&id(None, None)), Access::Granted);
        assert_eq!(by_id.listed_in(), None);
    }
}
