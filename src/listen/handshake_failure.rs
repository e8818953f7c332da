//! Reasons why a TLS handshake fails.

use std::io;

/// Why a TLS handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(super) enum HandshakeFailure {
    /// The peer sent plain HTTP.
    PlainHttp,
    /// The peer sent something other than TLS.
    NotTls,
    /// The two sides have no TLS version, cipher or application protocol in common.
    Incompatible,
    /// The peer sent an alert, usually because it does not trust the certificate.
    Declined,
    /// The peer violated the TLS protocol.
    Misbehaved,
    /// The peer disconnected.
    Lost,
    /// The handshake took too long, another connection displaced this one, or the listener stopped.
    Unfinished,
}

// === impl HandshakeFailure ===

impl HandshakeFailure {
    pub(super) fn as_str(self) -> &'static str {
        self.into()
    }

    pub(super) fn of(error: &io::Error) -> Self {
        use rustls::Error;
        match error.get_ref().and_then(|error| error.downcast_ref::<Error>()) {
            Some(Error::InvalidMessage(_)) => Self::NotTls,
            Some(Error::PeerIncompatible(_) | Error::NoApplicationProtocol) => Self::Incompatible,
            Some(Error::AlertReceived(_)) => Self::Declined,
            Some(_) => Self::Misbehaved,
            None => Self::Lost,
        }
    }
}
