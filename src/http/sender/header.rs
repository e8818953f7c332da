//! Looks up a header.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Number of headers up to which a linear search costs less than hashing a name. Most requests have fewer headers.
const FEW: usize = 16;

/// Returns the first value of a header.
pub(in crate::http) fn first<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    if headers.len() > FEW {
        return headers.get(name);
    }
    headers.iter().find(|(candidate, _)| *candidate == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use http::header;

    use super::*;

    #[test]
    fn first_of_repeated_headers_is_found() {
        for others in [0, 3, FEW, 3 * FEW] {
            let mut headers = HeaderMap::new();
            for other in 0..others {
                headers.append(format!("x-{other}").parse::<HeaderName>().unwrap(), HeaderValue::from(other));
            }
            assert_eq!(first(&headers, &header::HOST), None);
            headers.append(header::HOST, HeaderValue::from_static("first"));
            headers.append(header::HOST, HeaderValue::from_static("second"));
            assert_eq!(first(&headers, &header::HOST).unwrap(), "first");
        }
    }
}
