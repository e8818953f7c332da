//! The encoding that a client prefers, according to its `accept-encoding`.

use http::{HeaderMap, HeaderValue, header};

/// The encoding to send, according to `accept-encoding` (RFC 9110, 12.5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Accepted {
    /// Plain, because there is no `accept-encoding`. The response needs no `vary`.
    Unsaid,
    /// Plain, because the client does not accept gzip, or prefers plain.
    Plain,
    /// Gzip, because the client accepts gzip and does not prefer plain.
    Gzip,
}

/// The weights of the encodings that the header lists, in thousandths.
#[derive(Debug, Default)]
struct Weights {
    gzip: Option<u16>,
    identity: Option<u16>,
    any: Option<u16>,
}

// === impl Accepted ===

impl Accepted {
    pub(in crate::http) fn of(headers: &HeaderMap) -> Self {
        if !headers.contains_key(header::ACCEPT_ENCODING) {
            return Self::Unsaid;
        }
        let mut weights = Weights::default();
        headers.get_all(header::ACCEPT_ENCODING).iter().for_each(|value| weights.read(value));
        let Weights { gzip, identity, any } = weights;
        let gzip = gzip.or(any).unwrap_or(0);
        // Plain is always acceptable, but if the header does not list it, a listed encoding is preferred.
        let identity = identity.or(any).unwrap_or(0);
        if gzip > 0 && gzip >= identity { Self::Gzip } else { Self::Plain }
    }
}

// === impl Weights ===

impl Weights {
    fn read(&mut self, value: &HeaderValue) {
        for element in value.to_str().unwrap_or_default().split(',') {
            let mut parts = element.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let said = parts.filter_map(|parameter| parameter.split_once('='));
            let mut said = said.filter(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
            // An unreadable weight is taken as 0.
            let weight = said.next().map_or(1000, |(_, weight)| thousandths(weight.trim()).unwrap_or(0));
            let place = match name {
                "*" => &mut self.any,
                name if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") => {
                    &mut self.gzip
                }
                name if name.eq_ignore_ascii_case("identity") => &mut self.identity,
                _ => continue,
            };
            *place = Some(weight);
        }
    }
}

/// Parses a weight such as `0`, `0.5` or `1.000`: at most 1, with at most three decimals.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    if rest.len() > 3 || !rest.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let rest = rest.bytes().chain(*b"000").take(3).fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    match (whole, rest) {
        ("0", rest) => Some(rest),
        ("1", 0) => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_decide_between_gzip_and_plain() {
        for (said, accepted) in [
            ("gzip", Accepted::Gzip),
            ("x-gzip", Accepted::Gzip),
            ("GZip ; Q=0.001", Accepted::Gzip),
            ("gzip, deflate, br, zstd", Accepted::Gzip),
            ("br;q=1.0, gzip;q=0.8, *;q=0.1", Accepted::Gzip),
            ("*", Accepted::Gzip),
            ("*;q=0.5", Accepted::Gzip),
            ("gzip;q=1.000", Accepted::Gzip),
            ("gzip;q=0.5, identity;q=0.5", Accepted::Gzip),
            ("identity;q=0, gzip;q=0.1", Accepted::Gzip),
            ("deflate;q=0, *", Accepted::Gzip),
            ("gzip;level=9", Accepted::Gzip),
            ("", Accepted::Plain),
            (",,;", Accepted::Plain),
            ("identity", Accepted::Plain),
            ("deflate, br", Accepted::Plain),
            ("gzip;q=0", Accepted::Plain),
            ("gzip;q=0.000", Accepted::Plain),
            ("gzip;q=0, *", Accepted::Plain),
            ("*;q=0", Accepted::Plain),
            ("gzip;q=0.5, identity", Accepted::Plain),
            ("gzip;q=0.3, *;q=0.5", Accepted::Plain),
            // These weights are malformed, and the last name is unknown.
            ("gzip;q=", Accepted::Plain),
            ("gzip;q=2", Accepted::Plain),
            ("gzip;q=1.001", Accepted::Plain),
            ("gzip;q=0.1234", Accepted::Plain),
            ("gzip;q=-1", Accepted::Plain),
            ("gzipped", Accepted::Plain),
        ] {
            let headers = [(header::ACCEPT_ENCODING, HeaderValue::from_static(said))].into_iter().collect();
            assert_eq!(Accepted::of(&headers), accepted, "{said:?}");
        }
        assert_eq!(Accepted::of(&HeaderMap::new()), Accepted::Unsaid);
    }

    #[test]
    fn repeated_header_lines_form_one_list() {
        let mut headers = HeaderMap::new();
        headers.append(header::ACCEPT_ENCODING, HeaderValue::from_static("br"));
        headers.append(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        assert_eq!(Accepted::of(&headers), Accepted::Gzip);
        headers.append(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip;q=0"));
        assert_eq!(Accepted::of(&headers), Accepted::Plain);
    }

    #[test]
    fn non_text_header_is_ignored() {
        let value = HeaderValue::from_bytes(b"gzip\xff").unwrap();
        let headers = [(header::ACCEPT_ENCODING, value)].into_iter().collect();
        assert_eq!(Accepted::of(&headers), Accepted::Plain);
    }
}
