//! The status page: its embedded files, and its content security policy.

use http::{HeaderValue, Response, StatusCode, header};

use super::{body::Body, response::typed};

/// Allows the page's own styles, scripts, images and requests, and images in `data:` URLs. It allows nothing else, so
/// that injected content can neither run nor load anything.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const ICON: &str = include_str!("page/icon.svg");

/// The scripts of the page, by path.
const SCRIPTS: [(&str, &str); 8] = [
    ("/page.js", include_str!("page/page.js")),
    ("/cards.js", include_str!("page/cards.js")),
    ("/charts.js", include_str!("page/charts.js")),
    ("/lookup.js", include_str!("page/lookup.js")),
    ("/money.js", include_str!("page/money.js")),
    ("/plot.js", include_str!("page/plot.js")),
    ("/tables.js", include_str!("page/tables.js")),
    ("/words.js", include_str!("page/words.js")),
];

/// Returns the file of the page at this path, if there is one.
pub(super) fn asset(path: &str) -> Option<Response<Body>> {
    let (content_type, text) = match path {
        "/" => ("text/html; charset=utf-8", PAGE),
        "/page.css" => ("text/css; charset=utf-8", STYLE),
        "/icon.svg" => ("image/svg+xml", ICON),
        _ => {
            let (_, text) = SCRIPTS.iter().find(|(script, _)| *script == path)?;
            ("text/javascript; charset=utf-8", *text)
        }
    };
    let mut response = typed(StatusCode::OK, content_type, text.to_owned());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    Some(response)
}
