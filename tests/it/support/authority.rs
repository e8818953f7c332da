//! Certificates for test servers and for the proxy.

use std::{fs, net::SocketAddr, path::PathBuf, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsAcceptor, TlsConnector, client,
    rustls::{
        ClientConfig, RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, pem::PemObject},
    },
};

use super::{client::Raw, program::file};

/// A certificate authority that the clients trust.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
}

/// A certificate for loopback and its key, in temporary files.
pub struct Pair {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// A TLS connection with raw reads and writes.
pub type Secure = Raw<client::TlsStream<TcpStream>>;

// === impl Authority ===

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let file = file("ca.pem", &params.self_signed(&key).unwrap().pem());
        Self { issuer: Issuer::new(params, key), file }
    }

    /// Returns the path of the authority's own certificate.
    pub fn file(&self) -> &str {
        self.file.to_str().unwrap()
    }

    pub fn acceptor(&self, name: &str, protocols: &[&str]) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }

    /// Issues a new pair for loopback.
    pub fn pair(&self) -> Pair {
        let (cert, key) = self.issue();
        Pair { cert: file("cert.pem", &cert), key: file("key.pem", &key) }
    }

    /// Replaces the content of the files with a new pair.
    pub fn renew(&self, pair: &Pair) {
        let (cert, key) = self.issue();
        fs::write(&pair.cert, cert).unwrap();
        fs::write(&pair.key, key).unwrap();
    }

    fn issue(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// Returns the authority's own certificate for an HTTP client.
    pub fn certificate(&self) -> reqwest::Certificate {
        reqwest::Certificate::from_pem(&fs::read(&self.file).unwrap()).unwrap()
    }

    /// Connects as a client that trusts this authority and offers these protocols.
    pub async fn connect(&self, address: SocketAddr, protocols: &[&str]) -> std::io::Result<Secure> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.file).unwrap()).unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let tcp = TcpStream::connect(address).await?;
        let name = ServerName::from(address.ip());
        TlsConnector::from(Arc::new(config)).connect(name, tcp).await.map(Raw)
    }
}

// === impl Secure ===

impl Secure {
    /// Returns the certificate of the server.
    pub fn certificate(&self) -> Vec<u8> {
        self.0.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    }
}

// === impl Pair ===

impl Pair {
    /// Returns the certificate in the file.
    pub fn certificate(&self) -> Vec<u8> {
        CertificateDer::from_pem_file(&self.cert).unwrap().to_vec()
    }
}
