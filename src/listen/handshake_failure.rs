//! Reasons why a TLS handshake fails.

use std::io;

/// Why a TLS handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum HandshakeFailure {
    /// The peer speaks HTTP in the clear.
    PlainHttp,
    /// It speaks something else.
    NotTls,
    /// There is no version, cipher or protocol that both know.
    Incompatible,
    /// It does not like what it is shown: it does not trust the certificate, mostly.
    Declined,
    /// It breaks the rules.
    Misbehaved,
    /// It went away.
    Lost,
    /// It took too long, or its place was needed.
    Unfinished,
}

// === impl HandshakeFailure ===

impl HandshakeFailure {
    pub(super) const ALL: [Self; 7] = [
        Self::PlainHttp,
        Self::NotTls,
        Self::Incompatible,
        Self::Declined,
        Self::Misbehaved,
        Self::Lost,
        Self::Unfinished,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::PlainHttp => "plain_http",
            Self::NotTls => "not_tls",
            Self::Incompatible => "incompatible",
            Self::Declined => "declined",
            Self::Misbehaved => "misbehaved",
            Self::Lost => "lost",
            Self::Unfinished => "unfinished",
        }
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
