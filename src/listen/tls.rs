//! The certificate of a listener, and its exchange while connections are served.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde::{Deserialize, Serialize};

/// What is spoken inside, the better first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Where the certificate is. Without one, clients connect in the clear.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// A PEM file with the certificate and those between it and its root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// A PEM file with its private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// For operators too, not only for clients.
    pub admin: bool,
}

/// A certificate and its key, which were read and fit together.
#[derive(Clone)]
pub struct TlsIdentity {
    chain: Vec<CertificateDer<'static>>,
    server: Arc<ServerConfig>,
}

/// What a listener shows its peers. Clones share it: what one [shows](Tls::show), all do.
#[derive(Clone)]
pub struct Tls(Arc<ArcSwap<TlsIdentity>>);

/// Why there is no certificate to show. Says nothing of what is in the key's file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A key without its certificate.
    #[error("the key has no certificate; set tls.cert to the PEM file that it is in")]
    NoCert,
    /// A certificate without its key.
    #[error("the certificate has no key; set tls.key to the PEM file that it is in")]
    NoKey,
    /// A wish that nothing can fulfil.
    #[error("TLS is wanted for operators, and there is no certificate; set tls.cert and tls.key")]
    AdminOnly,
    /// The certificate's file cannot be read.
    #[error("cannot read {path}: {source}; a PEM file with the certificate is expected")]
    CertUnread {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The key's file cannot be read.
    #[error("cannot read {path}: {source}; a PEM file with the certificate's private key is expected")]
    KeyUnread {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// There is something else in the certificate's file.
    #[error(
        "there is no certificate in {path}; expected is PEM (-----BEGIN CERTIFICATE-----), the server's own \
         certificate first, then those between it and its root"
    )]
    NotCert {
        /// The file.
        path: PathBuf,
    },
    /// There is something else in the key's file.
    #[error(
        "there is no private key in {path}; expected is PEM (-----BEGIN PRIVATE KEY-----, RSA or EC), not encrypted"
    )]
    NotKey {
        /// The file.
        path: PathBuf,
    },
    /// The key belongs to another certificate.
    #[error("the key in {path} is not that of the certificate in {cert}; both must be of one pair")]
    Mismatch {
        /// The key's file.
        path: PathBuf,
        /// The certificate's file.
        cert: PathBuf,
    },
    /// They cannot be used.
    #[error("the certificate in {path} cannot be used: {source}")]
    Unusable {
        /// The certificate's file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: rustls::Error,
    },
}

// === impl TlsConfig ===

impl TlsConfig {
    /// The keys that a reload applies.
    pub const RELOADABLE: &[&str] = &["cert", "key"];

    /// Is there a certificate to show?
    pub fn is_on(&self) -> bool {
        self.cert.is_some() && self.key.is_some()
    }

    /// Is it whole, whatever its files hold?
    ///
    /// # Errors
    /// If it names one file and not the other, or none though one is needed.
    pub fn check(&self) -> Result<(), TlsError> {
        match (&self.cert, &self.key) {
            (None, Some(_)) => Err(TlsError::NoCert),
            (Some(_), None) => Err(TlsError::NoKey),
            (None, None) if self.admin => Err(TlsError::AdminOnly),
            _ => Ok(()),
        }
    }

    /// Reads the files, if there are any.
    ///
    /// # Errors
    /// If they cannot be read, hold something else, or do not fit together.
    pub fn read(&self) -> Result<Option<TlsIdentity>, TlsError> {
        self.check()?;
        match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => TlsIdentity::read(cert, key).map(Some),
            _ => Ok(None),
        }
    }
}

// === impl TlsIdentity ===

impl TlsIdentity {
    fn read(cert: &Path, key: &Path) -> Result<Self, TlsError> {
        let pem = fs::read(cert).map_err(|source| TlsError::CertUnread { path: cert.to_owned(), source })?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty());
        let chain = chain.ok_or_else(|| TlsError::NotCert { path: cert.to_owned() })?;
        let pem = fs::read(key).map_err(|source| TlsError::KeyUnread { path: key.to_owned(), source })?;
        // What the reader says of a bad key shows some of it.
        let secret =
            PrivateKeyDer::from_pem_slice(&pem).map_err(|_| TlsError::NotKey { path: key.to_owned() })?;
        // Asked before the pair is, so that the file at fault is named.
        ring::sign::any_supported_type(&secret).map_err(|_| TlsError::NotKey { path: key.to_owned() })?;
        let unusable = |source| match source {
            rustls::Error::InconsistentKeys(_) => {
                TlsError::Mismatch { path: key.to_owned(), cert: cert.to_owned() }
            }
            source => TlsError::Unusable { path: cert.to_owned(), source },
        };
        let mut server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|server| server.with_no_client_auth().with_single_cert(chain.clone(), secret))
            .map_err(unusable)?;
        server.alpn_protocols = PROTOCOLS.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Self { chain, server: Arc::new(server) })
    }
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsIdentity").field("certificates", &self.chain.len()).finish_non_exhaustive()
    }
}

// === impl Tls ===

impl Tls {
    /// Shows this one first.
    pub fn new(identity: TlsIdentity) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(identity)))
    }

    /// Shows this one from the next connection on; those that are open go on as they are. Says
    /// whether it is another than before.
    pub fn show(&self, identity: TlsIdentity) -> bool {
        let another = self.0.load().chain != identity.chain;
        // Kept otherwise: with it go the sessions that clients can resume.
        if another {
            self.0.store(Arc::new(identity));
        }
        another
    }

    pub(super) fn server(&self) -> Arc<ServerConfig> {
        self.0.load().server.clone()
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.0.load()).finish()
    }
}

// === impl TlsError ===

impl TlsError {
    /// Which of the keys of a [`TlsConfig`] is at fault; of those that are set.
    pub fn key(&self) -> &'static str {
        match self {
            Self::NoKey | Self::CertUnread { .. } | Self::NotCert { .. } | Self::Unusable { .. } => "cert",
            Self::NoCert | Self::KeyUnread { .. } | Self::NotKey { .. } | Self::Mismatch { .. } => "key",
            Self::AdminOnly => "admin",
        }
    }
}
