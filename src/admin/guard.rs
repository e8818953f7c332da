//! Decides which requests may change something.
//!
//! Every client that reaches the listener may read. A request that changes something must not come from a web page of
//! another origin, and must have the admin token if one is set. If the listener is not on loopback, a token must be set.

use std::net::IpAddr;

use http::{HeaderMap, Request, StatusCode, header};

use crate::http::KeyHash;

const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Checks requests that change something.
#[derive(Clone, Debug)]
pub struct Guard {
    token: Option<KeyHash>,
    is_loopback: bool,
}

/// Why a request may not change anything, and the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteRefusal {
    /// A web page of another origin sent the request.
    #[error(
        "this request came from a web page of another origin; only the status page of this listener may change something"
    )]
    CrossOrigin,
    /// Other machines can reach the listener, and no token is set.
    #[error(
        "changes are disabled: the admin listener is not on loopback and admin_token is not set; set it to the sha256 \
         that `holdfast key new` prints, and send the key as authorization: Bearer KEY"
    )]
    NoTokenSet,
    /// The request has no token.
    #[error(
        "this request needs the admin token: send authorization: Bearer TOKEN, the key whose sha256 is admin_token; \
         commands read it from HOLDFAST_ADMIN_TOKEN"
    )]
    NoToken,
    /// The request has a wrong token.
    #[error("wrong admin token: its sha256 is not admin_token")]
    BadToken,
}

// === impl Guard ===

impl Guard {
    /// Creates the guard of a listener on this address, with the hash of the token that is required, if any.
    pub fn new(listener: IpAddr, token: Option<KeyHash>) -> Self {
        Self { token, is_loopback: listener.to_canonical().is_loopback() }
    }

    /// Checks that a request may change something.
    ///
    /// # Errors
    /// If the request may not change anything.
    pub(super) fn check<B>(&self, request: &Request<B>) -> Result<(), WriteRefusal> {
        if !is_same_origin(request) {
            return Err(WriteRefusal::CrossOrigin);
        }
        let brought = KeyHash::of_bearer(request.headers());
        match (&self.token, brought) {
            (None, _) if self.is_loopback => Ok(()),
            (None, _) => Err(WriteRefusal::NoTokenSet),
            (Some(_), None) => Err(WriteRefusal::NoToken),
            (Some(token), Some(brought)) if token.fits(&brought) => Ok(()),
            (Some(_), Some(_)) => Err(WriteRefusal::BadToken),
        }
    }
}

/// Returns whether a request comes from this listener's own page, or not from a browser. Browsers send the origin of a
/// request, and web pages cannot prevent that.
fn is_same_origin<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    // `same-site` is not enough, because a server on another port of this machine belongs to the same site.
    let fetched = headers.get_all(SEC_FETCH_SITE).iter().all(|site| site == "same-origin" || site == "none");
    let host =
        host(request.headers()).or_else(|| request.uri().authority().map(|host| host.as_str().as_bytes()));
    let origins = headers.get_all(header::ORIGIN).iter();
    fetched && origins.into_iter().all(|origin| is_origin_of(origin.as_bytes(), host))
}

fn host(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get(header::HOST).map(|host| host.as_bytes())
}

fn is_origin_of(origin: &[u8], host: Option<&[u8]>) -> bool {
    let own = [b"http://".as_slice(), b"https://"].into_iter().find_map(|scheme| origin.strip_prefix(scheme));
    own.zip(host).is_some_and(|(own, host)| own.eq_ignore_ascii_case(host))
}

// === impl WriteRefusal ===

impl WriteRefusal {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::CrossOrigin | Self::NoTokenSet => StatusCode::FORBIDDEN,
            Self::NoToken | Self::BadToken => StatusCode::UNAUTHORIZED,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn check(guard: &Guard, headers: &[(&str, &str)]) -> Result<(), WriteRefusal> {
        let request = headers
            .iter()
            .fold(Request::post("/purge"), |request, (name, value)| request.header(*name, *value));
        guard.check(&request.body(()).unwrap())
    }

    #[test]
    fn cross_origin_writes_are_refused() {
        let guard = Guard::new(Ipv4Addr::LOCALHOST.into(), None);
        let host = ("host", "127.0.0.1:8556");
        for own in [
            vec![host],
            vec![host, ("origin", "http://127.0.0.1:8556")],
            vec![
                host,
                ("origin", "HTTPS://127.0.0.1:8556".to_lowercase().as_str()),
                ("sec-fetch-site", "same-origin"),
            ],
            vec![host, ("sec-fetch-site", "none")],
        ] {
            assert_eq!(check(&guard, &own), Ok(()), "{own:?}");
        }
        for other in [
            vec![host, ("origin", "http://127.0.0.1:8555")],
            vec![host, ("origin", "http://127.0.0.1")],
            vec![host, ("origin", "http://evil.example.org")],
            vec![host, ("origin", "null")],
            vec![host, ("origin", "")],
            vec![host, ("origin", "http://127.0.0.1:8556"), ("origin", "http://evil.example.org")],
            vec![host, ("sec-fetch-site", "cross-site")],
            vec![host, ("sec-fetch-site", "same-site")],
            vec![("origin", "http://127.0.0.1:8556")],
        ] {
            assert_eq!(check(&guard, &other), Err(WriteRefusal::CrossOrigin), "{other:?}");
        }
    }

    #[test]
    fn token_is_required_off_loopback_or_if_configured() {
        let (near, far) = (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::UNSPECIFIED.into());
        let token = Some(KeyHash::of(b"hf_token"));
        let right = [("authorization", "Bearer hf_token")];
        assert_eq!(check(&Guard::new(near, None), &[]), Ok(()));
        assert_eq!(check(&Guard::new(far, None), &right), Err(WriteRefusal::NoTokenSet));
        for listener in [near, far] {
            let guard = Guard::new(listener, token);
            assert_eq!(check(&guard, &right), Ok(()));
            assert_eq!(check(&guard, &[]), Err(WriteRefusal::NoToken));
            assert_eq!(check(&guard, &[("authorization", "Basic hf_token")]), Err(WriteRefusal::NoToken));
            assert_eq!(check(&guard, &[("authorization", "Bearer hf_other")]), Err(WriteRefusal::BadToken));
            // The hash, which is in the configuration, is not accepted as the token.
            let hash = format!("Bearer {}", KeyHash::of(b"hf_token"));
            assert_eq!(check(&guard, &[("authorization", &hash)]), Err(WriteRefusal::BadToken));
            let page = [right[0], ("origin", "http://evil.example.org")];
            assert_eq!(check(&guard, &page), Err(WriteRefusal::CrossOrigin));
        }
    }
}
