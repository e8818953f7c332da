//! The certificate of a listener, which a reload can replace.

use std::{fmt, fs, io, path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde::{Deserialize, Serialize};

/// Application protocols (ALPN), the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Files of the certificate and its key. If they are not set, connections are not encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// A PEM file with the certificate and its intermediate certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// A PEM file with the certificate's private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Whether the admin listener uses TLS, too.
    pub admin: bool,
}

/// A certificate and its matching key.
#[derive(Clone)]
pub struct TlsIdentity {
    chain: Vec<CertificateDer<'static>>,
    server: Arc<ServerConfig>,
}

/// The certificate that a listener presents. All clones present the same one, which [`show`](Tls::show) replaces.
#[derive(Clone, Debug)]
pub struct Tls(Arc<ArcSwap<TlsIdentity>>);

/// Why a listener has no usable certificate. The message shows no content of the key's file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A key without its certificate.
    #[error("the key has no certificate; set tls.cert to the certificate's PEM file")]
    NoCert,
    /// A certificate without its key.
    #[error("the certificate has no key; set tls.key to the key's PEM file")]
    NoKey,
    /// TLS for the admin listener without a certificate.
    #[error("TLS for the admin listener needs a certificate; set tls.cert and tls.key")]
    AdminOnly,
    /// The certificate's file cannot be read.
    #[error("cannot read {0}: {1}; expected a PEM file with the certificate")]
    CertUnread(PathBuf, #[source] io::Error),
    /// The key's file cannot be read.
    #[error("cannot read {0}: {1}; expected a PEM file with the certificate's private key")]
    KeyUnread(PathBuf, #[source] io::Error),
    /// The certificate's file contains no certificate.
    #[error(
        "there is no certificate in {0}; expected PEM (-----BEGIN CERTIFICATE-----), the server's own \
         certificate first, then its intermediate certificates"
    )]
    NotCert(PathBuf),
    /// The key's file contains no usable key.
    #[error(
        "there is no private key in {0}; expected PEM (-----BEGIN PRIVATE KEY-----, RSA or EC), not encrypted"
    )]
    NotKey(PathBuf),
    /// The key in the first file does not belong to the certificate in the second.
    #[error("the key in {0} does not match the certificate in {1}; use the files of one pair")]
    Mismatch(PathBuf, PathBuf),
    /// The certificate in this file cannot be used.
    #[error("the certificate in {0} cannot be used: {1}")]
    Unusable(PathBuf, #[source] rustls::Error),
}

// === impl TlsConfig ===

impl TlsConfig {
    /// The configuration keys that a reload applies.
    pub const RELOADABLE: &[&str] = &["cert", "key"];

    /// Returns whether certificate and key are set.
    pub fn is_on(&self) -> bool {
        self.cert.is_some() && self.key.is_some()
    }

    /// Checks that the settings fit together, without reading the files.
    ///
    /// # Errors
    /// If only one of `cert` and `key` is set, or neither although `admin` needs them.
    pub fn check(&self) -> Result<(), TlsError> {
        match (&self.cert, &self.key) {
            (None, Some(_)) => Err(TlsError::NoCert),
            (Some(_), None) => Err(TlsError::NoKey),
            (None, None) if self.admin => Err(TlsError::AdminOnly),
            _ => Ok(()),
        }
    }

    /// Reads the files, if they are set.
    ///
    /// # Errors
    /// If [`check`](Self::check) fails, if a file cannot be read or has no usable content, or if certificate and key do
    /// not match.
    pub fn read(&self) -> Result<Option<TlsIdentity>, TlsError> {
        self.check()?;
        let (Some(cert), Some(key)) = (&self.cert, &self.key) else { return Ok(None) };
        let pem = fs::read(cert).map_err(|error| TlsError::CertUnread(cert.clone(), error))?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty());
        let chain = chain.ok_or_else(|| TlsError::NotCert(cert.clone()))?;
        let pem = fs::read(key).map_err(|error| TlsError::KeyUnread(key.clone(), error))?;
        // Drops the parser's error, because it shows parts of a bad key.
        let secret = PrivateKeyDer::from_pem_slice(&pem).map_err(|_| TlsError::NotKey(key.clone()))?;
        // Checks the key alone before the pair, so that the error names the file at fault.
        ring::sign::any_supported_type(&secret).map_err(|_| TlsError::NotKey(key.clone()))?;
        let unusable = |error| match error {
            rustls::Error::InconsistentKeys(_) => TlsError::Mismatch(key.clone(), cert.clone()),
            error => TlsError::Unusable(cert.clone(), error),
        };
        let mut server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|server| server.with_no_client_auth().with_single_cert(chain.clone(), secret))
            .map_err(unusable)?;
        server.alpn_protocols = PROTOCOLS.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Some(TlsIdentity { chain, server: Arc::new(server) }))
    }
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsIdentity").field("certificates", &self.chain.len()).finish_non_exhaustive()
    }
}

// === impl Tls ===

impl Tls {
    /// Presents `identity` until [`show`](Self::show) replaces it.
    pub fn new(identity: TlsIdentity) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(identity)))
    }

    /// Presents `identity` from the next connection on; open connections are not affected. Returns whether the certificate
    /// differs from the previous one.
    pub fn show(&self, identity: TlsIdentity) -> bool {
        let another = self.0.load().chain != identity.chain;
        // If the certificate is the same, keeps the current configuration, whose TLS sessions clients can resume.
        if another {
            self.0.store(Arc::new(identity));
        }
        another
    }

    pub(super) fn server(&self) -> Arc<ServerConfig> {
        self.0.load().server.clone()
    }
}

// === impl TlsError ===

impl TlsError {
    /// Returns the setting of [`TlsConfig`] at fault. If a setting is missing, returns the one that requires it.
    pub fn key(&self) -> &'static str {
        match self {
            Self::NoKey | Self::CertUnread(..) | Self::NotCert(_) | Self::Unusable(..) => "cert",
            Self::NoCert | Self::KeyUnread(..) | Self::NotKey(_) | Self::Mismatch(..) => "key",
            Self::AdminOnly => "admin",
        }
    }
}
