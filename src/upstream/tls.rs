//! Whom taskgate trusts when an upstream speaks TLS.
//!
//! The public roots are compiled in, so that an image needs no certificate store; the system's are added, so that a
//! private authority is one environment variable away (`SSL_CERT_FILE`, `SSL_CERT_DIR`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_native_certs::{CertificateResult, ErrorKind};

use super::Error;

/// A client configuration that trusts the public roots and the system's.
///
/// # Errors
/// [`Error::Setup`]: `SSL_CERT_FILE` is set and holds no certificate that can be read.
pub(super) fn with_system_roots() -> Result<ClientConfig, Error> {
    let file = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let mut roots = public_roots();
    roots.add_parsable_certificates(native(file.as_deref(), rustls_native_certs::load_native_certs())?);
    Ok(config(roots))
}

/// A client configuration with the public roots alone, for upstreams that are reached without TLS: nothing is read.
pub(super) fn with_public_roots() -> ClientConfig {
    config(public_roots())
}

fn public_roots() -> RootCertStore {
    RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }
}

fn config(roots: RootCertStore) -> ClientConfig {
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider supports the default TLS versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

type Certificates = Vec<rustls::pki_types::CertificateDer<'static>>;

fn native(file: Option<&Path>, loaded: CertificateResult) -> Result<Certificates, Error> {
    for error in &loaded.errors {
        tracing::debug!(%error, "system trust anchors");
        match (&error.kind, file) {
            (ErrorKind::Io { inner, path }, Some(file)) if path == file => {
                return Err(Error::Setup(format!("SSL_CERT_FILE cannot be read: {inner}")));
            }
            _ => (),
        }
    }
    if file.is_some() && loaded.certs.is_empty() {
        return Err(Error::Setup("SSL_CERT_FILE holds no certificate".into()));
    }
    Ok(loaded.certs)
}

#[cfg(test)]
mod tests {
    use rustls_native_certs::load_certs_from_paths;

    use super::*;

    #[test]
    fn a_named_file_must_be_readable() {
        let file = Path::new("/nonexistent/ca.pem");
        let error = native(Some(file), load_certs_from_paths(Some(file), None)).unwrap_err();
        assert!(error.to_string().contains("SSL_CERT_FILE cannot be read"), "{error}");

        let empty = tempfile::NamedTempFile::new().unwrap();
        let error = native(Some(empty.path()), load_certs_from_paths(Some(empty.path()), None)).unwrap_err();
        assert!(error.to_string().contains("no certificate"), "{error}");
    }

    #[test]
    fn a_missing_system_store_is_no_error() {
        let nowhere = Path::new("/nonexistent");
        assert!(native(None, load_certs_from_paths(None, Some(nowhere))).unwrap().is_empty());
    }

    #[test]
    fn public_roots_are_compiled_in() {
        assert!(public_roots().len() > 50);
        assert!(with_public_roots().alpn_protocols.is_empty());
    }
}
