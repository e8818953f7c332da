mod mistakes;

use std::{path::Path, time::Duration};

use bytesize::ByteSize;

use super::*;
use crate::{cache, http, secret::Secret, upstream};

/// The file that documents every key with its default.
const DOCUMENTED: &str = "config/holdfast.toml";

fn load(toml: &str) -> Result<Config, String> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static FILES: AtomicUsize = AtomicUsize::new(0);
    let name =
        format!("holdfast-config-{}-{}.toml", std::process::id(), FILES.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, toml).unwrap();
    let loaded = Sources::none().with_file(Some(path.clone())).load();
    std::fs::remove_file(&path).unwrap();
    loaded.map_err(|error| error.to_string().replace(&path.display().to_string(), "FILE"))
}

#[test]
fn the_documented_file_holds_the_defaults() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENTED);
    let documented = Sources::none().with_file(Some(path)).load().unwrap();
    let defaults = Config {
        upstream: upstream::Config {
            // `endpoints` is the only key without a default.
            endpoints: documented.upstream.endpoints.clone(),
            ..upstream::Config::default()
        },
        ..Config::default()
    };
    assert_eq!(documented, defaults);
}

#[test]
fn the_documented_file_leaves_no_key_out() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENTED)).unwrap();
    let mut keys = Vec::new();
    let mut defaults = Config { chain_id: Some(1), ..Config::default() };
    defaults.chain.finality_depth = Some(1);
    defaults.admin_token = Some(http::KeyHash::of(b"token"));
    defaults.tls.cert = Some("cert.pem".into());
    defaults.tls.key = Some("key.pem".into());
    defaults.tracing.otlp = Some(Secret::Plain("http://127.0.0.1:4318".to_owned()));
    defaults.cache.disk = Some(cache::DiskConfig::new("there"));
    defaults.cache.redis = Some(cache::redis::RedisConfig {
        ttl: Some(Duration::from_secs(1)),
        ca: Some("ca.pem".into()),
        ..cache::redis::RedisConfig::at("redis://127.0.0.1")
    });
    defaults.http.rate = "1/s".parse().ok();
    defaults.http.burst = std::num::NonZeroU32::new(1);
    defaults.upstream.hedge = upstream::Percentile::try_new(0.95);
    collect_keys(&serde_json::to_value(defaults).unwrap(), &mut keys);
    let of_endpoints = ["name", "url", "ws", "headers", "consistent", "priority", "weight", "rate"];
    let of_keys = ["name", "sha256", "allow", "deny"];
    for key in keys.into_iter().chain(of_endpoints.into_iter().chain(of_keys).map(str::to_owned)) {
        let documented = text.lines().any(|line| {
            let line = line.trim_start_matches(['#', ' ']);
            line.strip_prefix(key.as_str()).is_some_and(|rest| rest.trim_start().starts_with('='))
                || line.trim() == format!("[[upstream.{key}]]")
                || line.trim() == format!("[[http.{key}]]")
                || line.trim() == format!("[{key}]")
                || line.trim() == format!("[cache.{key}]")
        });
        assert!(documented, "{key} is not in {DOCUMENTED}");
    }
}

fn collect_keys(value: &serde_json::Value, keys: &mut Vec<String>) {
    if let serde_json::Value::Object(members) = value {
        for (key, value) in members {
            keys.push(key.clone());
            collect_keys(value, keys);
        }
    }
}

#[test]
fn empty_configuration_is_the_default() {
    assert_eq!(load("").unwrap(), Config::default());
    assert_eq!(Sources::none().load().unwrap(), Config::default());
}

#[test]
fn human_readable_values_are_parsed() {
    let config = load(
        "call_timeout = '1m 30s'\nstrict = true\nchain_id = 1\n[http]\nmax_body = '2 MB'\n[upstream]\n\
         endpoints = [{ url = 'http://127.0.0.1:8545', headers = { authorization = { env = 'CARGO_PKG_NAME' } } }]",
    )
    .unwrap();
    assert_eq!(config.call_timeout, Duration::from_secs(90));
    assert_eq!(config.http.max_body, ByteSize::mb(2));
    assert_eq!(config.chain_id, Some(1));
    assert!(format!("{config:?}").contains("$CARGO_PKG_NAME"));
}

/// Returns TOML with one or two keys, which have different hashes.
fn keys(first: &str, second: &str) -> String {
    let key = |members: &str, digit: &str| {
        if members.is_empty() {
            String::new()
        } else {
            format!("[[http.keys]]\nsha256 = '{}'\n{members}\n", digit.repeat(64))
        }
    };
    key(first, "0") + &key(second, "1")
}

#[test]
fn errors_name_file_key_and_expected_value() {
    for (toml, message) in [
        ("lsten = '127.0.0.1:1'", "FILE: lsten: unknown key; valid keys here are"),
        ("[http]\nmax_bodi = 1", "FILE: http.max_bodi: unknown key; valid keys here are"),
        ("[http]\nmax_batch = 'many'", "FILE: http.max_batch: expected"),
        ("[http]\nmax_batch = 0", "FILE: http.max_batch: must be at least 1"),
        (
            "call_timeout = 5",
            "FILE: call_timeout: expected a time such as \"500ms\", \"10s\" or \"1m 30s\", found the number 5",
        ),
        (
            "call_timeout = '10'",
            "FILE: call_timeout: expected a time such as \"500ms\", \"10s\" or \"1m 30s\", found",
        ),
        ("call_timeout = 'soon'", "FILE: call_timeout: expected a time such as"),
        ("chain_id = '0x2a'", "FILE: chain_id: expected a whole number, found \"0x2a\"; that is 42"),
        (
            "admin = '127.0.0.1:8555'",
            "FILE: admin: 127.0.0.1:8555 is the address of the client listener (listen)",
        ),
        ("admin_token = 'hf_0123'", "FILE: admin_token: expected the SHA-256 of a key in 64 hex digits"),
        ("listen = 'here'", "FILE: listen: expected an address and a port, such as 127.0.0.1:8555"),
        ("listen = '8555'", "FILE: listen: expected an address and a port, such as 127.0.0.1:8555"),
        (
            "admin = 8556",
            "FILE: admin: expected an address and a port, such as 127.0.0.1:8555, [::1]:8555 or localhost:8555, found",
        ),
        ("[log]\nformat = 'xml'", "FILE: log.format: \"xml\" is not one of `text` or `json`"),
        ("[log]\nlevel = 'chatty'", "FILE: log.level: \"chatty\" is not one of error, warn"),
        ("[log]\nlevel = 'a=b=c'", "FILE: log.level: \"a=b=c\": "),
        (
            "[verify]\nlevel = 'some'",
            "FILE: verify.level: \"some\" is not one of `auto`, `full`, `structural`",
        ),
        (
            "[verify]\non_mismatch = 'shrug'",
            "FILE: verify.on_mismatch: \"shrug\" is not one of `pass` or `reject`",
        ),
        ("[tracing]\nsample = 2", "FILE: tracing.sample: 2 is out of range; write a number from 0 to 1"),
        ("[tracing]\nurl = 'http://127.0.0.1'", "FILE: tracing.url: unknown key; valid keys here are"),
        (
            "[tracing]\notlp = { env = 'HOLDFAST_IS_NOT_SET' }",
            "FILE: tracing.otlp: the environment variable HOLDFAST_IS_NOT_SET is not set, or not UTF-8",
        ),
        ("[methods]\nallow = ['eth_[ab]']", "FILE: methods.allow: \"eth_[ab]\" is not a method name pattern"),
        (
            "[methods]\ntrusted_origins = ['*']",
            "FILE: methods.trusted_origins: \"*\" would let every website sign",
        ),
        (
            "[methods]\ntrusted_origins = ['example.org']",
            "FILE: methods.trusted_origins: \"example.org\" is not an origin",
        ),
        ("[connections]\nidle_timeout = '0s'", "FILE: connections.idle_timeout: must be at least 1ms"),
        ("[[upstream.endpoints]]\nheaders = {}", "FILE: upstream.endpoints.0.url: is missing"),
        (
            "[[upstream.endpoints]]\nurl = 'localhost:8545'",
            "FILE: upstream.endpoints.0: url: the scheme must be http or https",
        ),
        (
            "[[upstream.endpoints]]\nurl = 'ws://127.0.0.1:8546'",
            "FILE: upstream.endpoints.0: url: the scheme must be http or https, as in http://127.0.0.1:8545; put a \
             WebSocket's URL into the key ws of [[upstream.endpoints]]",
        ),
        (
            "[upstream.endpoints]\nurl = 'http://127.0.0.1:8545'",
            "FILE: upstream.endpoints: expected a list, found a table; begin each with [[upstream.endpoints]], in two",
        ),
        (
            "[http.keys]\nname = 'a'",
            "FILE: http.keys: expected a list, found a table; begin each with [[http.keys]], in two brackets",
        ),
        (
            "[[upstream.endpoints]]\nurl = 'http://127.0.0.1'\nweight = 0",
            "FILE: upstream.endpoints.0: weight: must be at least 1",
        ),
        (
            "[[upstream.endpoints]]\nurl = 'http://127.0.0.1'\nrate = { per_second = 0, burst = 1 }",
            "FILE: upstream.endpoints.0: rate.per_second: must be at least 1; leave rate out if there is no limit",
        ),
        (
            "[[upstream.endpoints]]\nurl = 'http://127.0.0.1'\nrate = { per_second = 1, burst = 0 }",
            "FILE: upstream.endpoints.0: rate.burst: must be at least 1; leave rate out if there is no limit",
        ),
        (
            "[[upstream.endpoints]]\nurl = 'http://127.0.0.1'\nheaders = { Content-Length = '5' }",
            "FILE: upstream.endpoints.0: headers.Content-Length: is managed by Holdfast itself",
        ),
        (
            "[[upstream.endpoints]]\nurl = 'http://127.0.0.1'\nheaders = { transfer-encoding = 'chunked' }",
            "FILE: upstream.endpoints.0: headers.transfer-encoding: is managed by Holdfast itself",
        ),
        ("[chain]\nfinality_depth = 0", "FILE: chain.finality_depth: must be at least 1"),
        (
            "[chain]\nwindow = 64\nfinality_depth = 64",
            "FILE: chain.finality_depth: must be less than chain.window, 64",
        ),
        (
            "[chain]\nfollow = 'head'",
            "FILE: chain.follow: \"head\" is not one of `off`, `heads`, `blocks`, `full`",
        ),
        (
            "[[upstream.endpoints]]\nurl = 'http://127.0.0.1:8545'\nws = 'http://127.0.0.1:8546'",
            "FILE: upstream.endpoints.0: ws: the scheme must be ws or wss",
        ),
        ("[tls]\ncert = 'cert.pem'", "FILE: tls.cert: the certificate has no key; set tls.key"),
        ("[tls]\nkey = 'key.pem'", "FILE: tls.key: the key has no certificate; set tls.cert"),
        ("[tls]\nadmin = true", "FILE: tls.admin: TLS for the admin listener needs a certificate"),
        ("[upstream]\nhedge = 0.2", "FILE: upstream.hedge: 0.2 is not a valid percentile for hedging"),
        ("[upstream]\nhedge = 1.0", "FILE: upstream.hedge: 1 is not a valid percentile for hedging"),
        ("[upstream]\nhedge = true", "FILE: upstream.hedge: expected"),
        ("[http]\nmax_per_client = 0", "FILE: http.max_per_client: must be at least 1"),
        (
            "[http]\nallowed_hosts = ['http://rpc.example.org']",
            "FILE: http.allowed_hosts.0: \"http://rpc.example.org\" is not a host; write a name or an address",
        ),
        (
            "[http]\ntrusted_proxies = ['10.0.0.0/8', '10.0.0.0/33']",
            "FILE: http.trusted_proxies.1: \"10.0.0.0/33\" is neither an address nor a network; write for example 10.0.0.7",
        ),
        (
            "[http]\nrate = '0/s'",
            "FILE: http.rate: \"0/s\" is not a rate; use calls per second, minute or hour",
        ),
        ("[http]\nrate = 100", "FILE: http.rate: expected calls per unit of time, such as \"100/s\", found"),
        ("[http]\nburst = 5", "FILE: http.burst: has no effect without a rate; set one"),
        ("[http]\nrate = '1/s'\nburst = 0", "FILE: http.burst: expected a whole number from 1 on, found"),
        ("[http]\nrate = '1/s'\nburst = 2000000", "FILE: http.burst: must be at most 1000000"),
        (
            "[[http.keys]]\nname = 'a'\nsha256 = 'abc'",
            "FILE: http.keys.0.sha256: expected the SHA-256 of a key in 64 hex digits; `holdfast key new`",
        ),
        ("[[http.keys]]\nname = 'a'", "FILE: http.keys.0.sha256: is missing"),
        (&keys("name = 'a b'", ""), "FILE: http.keys.0.name: expected a name of 1 to 64 letters"),
        (&keys("name = 'a'", "name = 'a'"), "FILE: http.keys.1.name: two keys are named \"a\""),
        (
            &keys("name = 'a'", "name = 'b'").replace('1', "0"),
            "FILE: http.keys.1.sha256: the same key is listed twice",
        ),
        (
            &keys("name = 'a'\nallow = ['eth_[']", ""),
            "FILE: http.keys.0.allow: \"eth_[\" is not a method name pattern",
        ),
        (&keys("name = 'a'\nrate = '1/d'", ""), "FILE: http.keys.0.rate: \"1/d\" is not a rate"),
        (&keys("name = 'a'\nburst = 1", ""), "FILE: http.keys.0.burst: has no effect without a rate"),
        // These values exceed the limit of a semaphore, and sums with them could overflow.
        ("[http]\nmax_in_flight = 9223372036854775807", "FILE: http.max_in_flight: must be at most"),
        ("[upstream]\nmax_in_flight = 9223372036854775807", "FILE: upstream.max_in_flight: must be at most"),
    ] {
        let error = load(toml).unwrap_err();
        assert!(error.starts_with(message), "for {toml:?}\nexpected {message}\n     got {error}");
    }
}

#[test]
fn otlp_receiver_needs_the_otlp_feature() {
    assert_eq!(load("[tracing]\notlp = ''").unwrap().tracing.receiver(), Ok(None));
    let with = |members: &str| load(&format!("[tracing]\notlp = 'http://127.0.0.1:4318'\n{members}"));
    if cfg!(feature = "otlp") {
        let receiver = with("sample = 0.1").unwrap().tracing.receiver().unwrap().unwrap();
        assert_eq!(receiver.url().to_string(), "http://127.0.0.1:4318");
        for url in ["127.0.0.1:4318", "grpc://127.0.0.1:4317", "http://", "ws://127.0.0.1"] {
            let error = load(&format!("[tracing]\notlp = '{url}'")).unwrap_err();
            assert!(
                error.starts_with("FILE: tracing.otlp: expected the URL of a receiver"),
                "{url}: {error}"
            );
        }
        let error = with("headers = { content-length = '5' }").unwrap_err();
        assert!(
            error.starts_with("FILE: tracing: headers.content-length: is managed by Holdfast itself"),
            "{error}"
        );
    } else {
        let error = with("").unwrap_err();
        assert!(error.starts_with("FILE: tracing.otlp: "), "{error}");
        assert!(error.contains("build it with --features otlp"), "{error}");
    }
}

#[test]
fn unusual_settings_produce_warnings() {
    let warnings = |toml: &str| {
        let warnings = load(toml).unwrap().warnings();
        warnings.iter().map(|doubt| doubt.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(warnings(""), [""; 0]);
    assert_eq!(
        warnings("[[upstream.endpoints]]\nurl = 'http://127.0.0.1'\nheaders = { host = 'a.b' }"),
        [""; 0]
    );
    let [short] = &warnings("call_timeout = '10s'")[..] else { panic!() };
    assert!(short.starts_with("call_timeout: 10 s is not longer than upstream.timeout, 25 s: "), "{short}");
    assert_eq!(warnings("call_timeout = '10s'\n[upstream]\ntimeout = '8s'"), [""; 0]);
    let [little] = &warnings("max_bytes_in_flight = '100 MiB'")[..] else { panic!() };
    assert!(
        little.starts_with(
            "max_bytes_in_flight: 100.0 MiB for all clients together is less than upstream.max_answer"
        ),
        "{little}"
    );
    assert!(little.ends_with("; set it to 192.0 MiB or more, or lower upstream.max_answer"), "{little}");
    assert_eq!(warnings("max_bytes_in_flight = '1 MiB'").len(), 2);
    let [little] = &warnings("max_bytes_per_client = '100 MiB'")[..] else { panic!() };
    assert!(little.starts_with("max_bytes_per_client: 100.0 MiB for one client is less than"), "{little}");
    let [half, _] = &warnings("listen = '0.0.0.0:8545'\nmax_bytes_in_flight = '200 MiB'")[..] else {
        panic!()
    };
    assert!(half.starts_with("max_bytes_per_client: 100.0 MiB for one client (half of"), "{half}");
    let [open] = &warnings("listen = '0.0.0.0:8545'")[..] else { panic!() };
    assert!(open.starts_with("listen: 0.0.0.0:8545 is open to other machines, "), "{open}");
    for key in ["http.rate", "http.keys", "upstream.endpoints"] {
        assert!(open.contains(key), "{open}");
    }
    assert_eq!(warnings("listen = '0.0.0.0:8545'\n[http]\nrate = '10/s'"), [""; 0]);
    assert_eq!(warnings("listen = '[::1]:8545'"), [""; 0]);
}

#[test]
fn errors_do_not_show_secrets() {
    for toml in [
        // A client's key stands where its hash belongs.
        "[[http.keys]]\nname = 'a'\nsha256 = 'SECRET'\n",
        "[[http.keys]]\nname = 'a'\nsha256 = ['SECRET']\n",
        "[[http.keys]]\nname = 'a'\nkey = 'SECRET'\n",
        "[http]\nkeys = 'SECRET'\n",
        "tracing = 'http://127.0.0.1/SECRET'\n",
        "[tracing]\notlp = ['SECRET']\n",
        "[tracing]\notlp = 'SECRET'\n",
        "[tracing]\nsample = 'SECRET'\n",
        "[tracing]\nheaders = 'SECRET'\n",
        "[tracing]\notlp = 'http://127.0.0.1'\nheaders = { content-length = 'SECRET' }\n",
        "[tracing]\notlp = 'http://user:SECRET@127.0.0.1'\nheaders = { authorization = 'SECRET' }\n",
        "admin_token = 'SECRET'\n",
        "admin_token = ['SECRET']\n",
        "[http]\nkeys = ['SECRET']\n",
        "[[upstream.endpoints]]\nurl = 'http://user:SECRET@127.0.0.1\n",
        "[[upstream.endpoints]]\nurl = ['SECRET']\n",
        // A URL stands in place of a table, a common mistake in a first configuration.
        "upstream = 'http://127.0.0.1/SECRET'\n",
        "[upstream]\nendpoints = 'http://127.0.0.1/SECRET'\n",
        "[upstream]\nendpoints = ['http://127.0.0.1/SECRET']\n",
        "[upstream]\nmax_answer = 'SECRET'\n",
        "[[upstream.endpoints]]\nurl = 'x'\nheaders = { authorization = ['SECRET'] }\n",
        "[[upstream.endpoints]]\nurl = { eenv = 'SECRET' }\n",
        "[[upstream.endpoints]]\nurl = { env = 'X', file = 'SECRET' }\n",
        "[[upstream.endpoints]]\nurl = 'http://127.0.0.1'\nws = 'ws://user:SECRET@127.0.0.1/SECRET'\n",
        "[[upstream.endpoints]]\nurl = 'http://127.0.0.1'\nws = 'http://127.0.0.1/SECRET'\n",
    ] {
        let error = load(toml).unwrap_err();
        assert!(!error.contains("SECRET"), "{error}");
    }
    let config = load("[[upstream.endpoints]]\nurl = 'http://127.0.0.1/SECRET'").unwrap();
    assert!(!format!("{config:?}").contains("SECRET"));
}

#[test]
fn flags_override_the_file() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENTED);
    let config = Sources::none()
        .with_file(Some(path))
        .with_flag("listen", Some("127.0.0.1:1"))
        .with_flag("log.level", Some("debug"))
        .with_flag("strict", None::<bool>)
        .with_upstreams(vec!["http://127.0.0.1:2".to_owned()])
        .load()
        .unwrap();
    assert_eq!(config.listen.port(), 1);
    assert_eq!(config.log.level, "debug");
    assert_eq!(config.log.format, LogFormat::Text);
    assert_eq!(config.upstream.endpoints[0].url.resolve().unwrap(), "http://127.0.0.1:2");
}
