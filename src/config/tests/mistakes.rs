//! Common mistakes, and the advice in their errors.

use super::*;

#[test]
fn sizes_below_a_sane_minimum_are_refused() {
    for (toml, message) in [
        (
            "[cache]\nsize = '512'",
            "FILE: cache.size: 512 B is too small; write at least 1 MiB, with the unit, such as \"512 MiB\"",
        ),
        ("[cache]\nsize = 512", "FILE: cache.size: 512 B is too small; write at least 1 MiB"),
        ("[cache.disk]\npath = '/x'\nsize = '10'", "FILE: cache.disk.size: 10 B is too small; "),
        ("[http]\nmax_body = '5'", "FILE: http.max_body: 5 B is too small; write at least 1 KiB"),
        ("[upstream]\nmax_answer = '128'", "FILE: upstream.max_answer: 128 B is too small; "),
        ("max_bytes_in_flight = 0", "FILE: max_bytes_in_flight: 0 B is too small; "),
        ("max_bytes_per_client = '256 KiB'", "FILE: max_bytes_per_client: 256.0 KiB is too small; "),
    ] {
        let error = load(toml).unwrap_err();
        assert!(error.starts_with(message), "for {toml:?}\nexpected {message}\n     got {error}");
    }
    load("[cache]\nsize = '1 MiB'\n[http]\nmax_body = '1 KiB'").unwrap();
}

#[test]
fn similar_keys_are_suggested() {
    for (toml, suggestion) in [
        ("lsten = '127.0.0.1:1'", "; did you mean listen?"),
        ("log_level = 'debug'", "; did you mean log.level?"),
        ("[http]\nmax_bodies = 5", "; did you mean http.max_body?"),
        ("[http]\nallowed_host = ['a']", "; did you mean http.allowed_hosts?"),
        ("cache_disk_path = '/x'", "; did you mean cache.disk.path?"),
        (
            "[[upstream.endpoints]]\nurl = 'http://x'\nweigth = 2",
            "; did you mean upstream.endpoints.0.weight?",
        ),
    ] {
        let error = load(toml).unwrap_err();
        assert!(error.contains(": unknown key; valid keys here are "), "{error}");
        assert!(error.ends_with(suggestion), "for {toml:?}\nexpected {suggestion}\n     got {error}");
    }
    let error = load("no_such_key = 1").unwrap_err();
    assert!(!error.contains("did you mean"), "{error}");
}

#[test]
fn errors_have_no_names_of_rust_types() {
    for (toml, message) in [
        (
            "[chain]\nfollow = true",
            "FILE: chain.follow: expected `off`, `heads`, `blocks`, `full`, found true",
        ),
        ("[log]\nformat = 5", "FILE: log.format: expected `text` or `json`, found the number 5"),
        (
            "[verify]\nlevel = ['full']",
            "FILE: verify.level: expected `auto`, `full`, `structural`, found a list",
        ),
        ("[http]\nrate = 100", "FILE: http.rate: expected"),
        ("strict = 'yes'", "FILE: strict: expected true or false, found \"yes\""),
        ("strict = 1", "FILE: strict: expected true or false, found the number 1"),
        ("chain_id = true", "FILE: chain_id: expected a whole number, found true"),
        ("chain_id = -1", "FILE: chain_id: "),
        ("chain_id = 1.5", "FILE: chain_id: expected a whole number, found the number 1.5"),
        ("[log]\nlevel = 5", "FILE: log.level: expected text, found the number 5"),
        ("[tracing]\nsample = 'all'", "FILE: tracing.sample: expected a number, found text"),
        ("[cache.disk]\npath = 5", "FILE: cache.disk.path: expected a path, found the number 5"),
        ("[methods]\nallow = 'eth_*'", "FILE: methods.allow: expected a list, found \"eth_*\""),
        ("http = 5", "FILE: http: expected a table, found the number 5"),
        (
            "[[upstream.endpoints]]\nurl = 'http://x'\nweight = 'a'",
            "FILE: upstream.endpoints.0.weight: expected",
        ),
        (
            "[[upstream.endpoints]]\nurl = 'http://x'\nrate = 25",
            "FILE: upstream.endpoints.0.rate: expected a table",
        ),
        (
            "[[upstream.endpoints]]\nurl = 'http://x'\nheaders = 25",
            "FILE: upstream.endpoints.0.headers: expected a table",
        ),
    ] {
        let error = load(toml).unwrap_err();
        assert!(error.starts_with(message), "for {toml:?}\nexpected {message}\n     got {error}");
        for rust in [
            "enum", "struct ", "u64", "u32", "usize", "f64", "bool", "string", "signed", "map", "sequence",
            "int `",
        ] {
            assert!(!error.contains(rust), "for {toml:?}: {error}");
        }
    }
}

#[test]
fn shell_variables_in_the_file_are_answered_with_env() {
    let secret =
        "FILE: upstream.endpoints.0.url: Holdfast does not expand ${NODE_URL}; write { env = \"NODE_URL\" }";
    for (toml, message) in [
        ("[[upstream.endpoints]]\nurl = '${NODE_URL}'", secret),
        ("[[upstream.endpoints]]\nurl = '$NODE_URL'", secret),
        (
            "[[upstream.endpoints]]\nurl = 'https://node.example/v2/${KEY:-SECRET}'",
            "FILE: upstream.endpoints.0.url: Holdfast does not expand ${KEY}; write { env = \"KEY\" } and set KEY to \
             the whole value",
        ),
        (
            "[[upstream.endpoints]]\nurl = 'http://x'\nheaders = { authorization = 'Bearer ${T}' }",
            "FILE: upstream.endpoints.0.headers.authorization: Holdfast does not expand ${T}; write { env = \"T\" }",
        ),
        ("[cache.redis]\nurl = '${R}'", "FILE: cache.redis.url: Holdfast does not expand ${R}; write { env"),
        (
            "[cache]\nsize = '${SIZE}'",
            "FILE: cache.size: Holdfast does not expand ${SIZE}; leave the key out and set HOLDFAST_CACHE__SIZE",
        ),
        (
            "[methods]\nallow = ['${METHODS}']",
            "FILE: methods.allow.0: Holdfast does not expand ${METHODS}; leave the key out and set \
             HOLDFAST_METHODS__ALLOW",
        ),
    ] {
        let error = load(toml).unwrap_err();
        assert!(error.starts_with(message), "for {toml:?}\nexpected {message}\n     got {error}");
        assert!(!error.contains("SECRET"), "{error}");
    }
    for value in ["a$b", "$", "${", "${}", "$1", "$ecret"] {
        load(&format!("[[upstream.endpoints]]\nurl = 'http://x'\nheaders = {{ x-key = '{value}' }}"))
            .unwrap();
    }
}

#[test]
fn listeners_take_host_names() {
    let config = load("listen = 'localhost:1234'\nadmin = 'localhost:1235'").unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:1234");
    assert_eq!(config.admin.port(), 1235);
    let error = load("listen = 'no-such-host.invalid:8555'").unwrap_err();
    assert!(
        error.starts_with("FILE: listen: cannot resolve the host name no-such-host.invalid: "),
        "{error}"
    );
    for wrong in [":8555", "localhost", "localhost:http", "localhost:99999", "http://localhost:8555", "::1"] {
        let error = load(&format!("listen = '{wrong}'")).unwrap_err();
        assert!(error.starts_with("FILE: listen: expected an address and a port"), "{wrong}: {error}");
    }
}

#[test]
fn endpoint_names_are_short_printable_and_unique() {
    let named = |first: &str, second: &str| {
        load(&format!(
            "[[upstream.endpoints]]\nurl = 'http://a'\nname = \"{first}\"\n\
             [[upstream.endpoints]]\nurl = 'http://b'\nname = \"{second}\"\n"
        ))
    };
    let config = named("alchemy-main", "Alchemy (2)").unwrap();
    assert_eq!(config.upstream.endpoints[0].name.as_deref(), Some("alchemy-main"));
    let unfit = "name: must be 1 to 40 printable ASCII characters, without spaces at the ends";
    for wrong in ["", " a", "a\\tb", "é", &"x".repeat(41)] {
        let error = named("a", wrong).unwrap_err();
        assert!(error.starts_with(&format!("FILE: upstream.endpoints.1: {unfit}")), "{wrong:?}: {error}");
    }
    let error = named("same", "same").unwrap_err();
    let expected = "FILE: upstream.endpoints.1: name: \"same\" is the name of upstream.endpoints.0, too";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn repeated_tables_are_answered_with_two_brackets() {
    let error =
        load("[upstream.endpoints]\nurl = 'http://a'\n[upstream.endpoints]\nurl = 'http://b'").unwrap_err();
    assert!(
        error.ends_with("; begin each of several with two brackets, as in [[upstream.endpoints]]"),
        "{error}"
    );
    let error = load("strict = true\nstrict = true").unwrap_err();
    assert!(error.contains("duplicate key") && !error.contains("brackets"), "{error}");
}
