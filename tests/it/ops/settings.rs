//! Settings: mistakes that are explained, and how the program shows the settings in force.

use std::path::Path;

use serde_json::json;

use crate::support::{
    client,
    process::{self, reload},
    program::{Program, file, holdfast, output, success, text},
    tiers::directory,
    upstream,
};

const NOWHERE: &str = "http://127.0.0.1:1";

#[tokio::test]
async fn check_refuses_the_same_directories_as_serve() {
    if !Path::new("/proc/self").exists() {
        return;
    }
    let node = upstream::devchain().run().await;
    for (directory, said) in [
        ("/proc/holdfast", "\"/proc/holdfast\" does not exist, and creating it failed"),
        ("/proc/holdfast/cache", "\"/proc/holdfast/cache\" does not exist, and creating it failed"),
        ("/proc/self", "cannot write to \"/proc/self\""),
        ("Cargo.toml", "\"Cargo.toml\" is not a directory"),
        ("Cargo.toml/cache", "\"Cargo.toml/cache\" is not a directory"),
    ] {
        for command in ["serve", "check"] {
            let arguments = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", directory];
            let ran =
                output(holdfast(&[&[command, "--upstream", &node.url()][..], &arguments].concat())).await;
            let all = text(&ran.stdout) + &text(&ran.stderr);
            assert_eq!(ran.status.code(), Some(1), "{command} {directory}: {all}");
            assert!(all.contains(said), "{command} {directory}: {all}");
        }
    }
}

#[tokio::test]
async fn directory_of_a_running_instance_passes_the_check() {
    let node = upstream::devchain().run().await;
    let directory = directory();
    let directory = directory.to_str().unwrap();
    let _process = process::serve(&node).set("CACHE__DISK__PATH", directory).run().await;
    let ran = output(holdfast(&["check", "--upstream", &node.url(), "--data", directory])).await;
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stdout));
    let left: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("check")), "{left:?}");
}

#[tokio::test]
async fn check_takes_the_flags_of_serve() {
    let check = ["check", "--offline", "--upstream", NOWHERE];
    let ran = output(holdfast(&[&check[..], &["--cache-size", "512"]].concat())).await;
    let said = text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(64), "{said}");
    assert!(said.contains("the flags: cache.size: 512 B is too small; write at least 1 MiB"), "{said}");
    let ran = output(holdfast(&[&check[..], &["--listen", "127.0.0.1:8556"]].concat())).await;
    assert_eq!(ran.status.code(), Some(64), "{}", text(&ran.stdout));
}

#[tokio::test]
async fn single_underscore_in_a_variable_is_explained() {
    let mut command = holdfast(&["check", "--offline", "--upstream", NOWHERE]);
    command.env("HOLDFAST_LOG_LEVEL", "debug");
    let ran = output(command).await;
    let said = text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(64), "{said}");
    assert!(
        said.contains("environment") && said.trim().ends_with("; did you mean HOLDFAST_LOG__LEVEL?"),
        "{said}"
    );
}

#[tokio::test]
async fn empty_upstream_variable_counts_as_unset() {
    let config = file("node.toml", &format!("[[upstream.endpoints]]\nurl = '{NOWHERE}'\n"));
    let check = |arguments: &[&str]| {
        let mut command = holdfast(&[&["check", "--offline"], arguments].concat());
        command.env("HOLDFAST_UPSTREAM_URL", "").env("HOLDFAST_CONFIG", "");
        command
    };
    let ran = output(check(&["--config", config.to_str().unwrap()])).await;
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    let ran = output(check(&[])).await;
    assert_eq!(ran.status.code(), Some(64));
    assert!(text(&ran.stderr).contains("no node is configured; use --upstream"), "{}", text(&ran.stderr));
}

#[tokio::test]
async fn image_is_not_warned_of_its_own_admin_address() {
    let image = std::fs::read_to_string("docker/Dockerfile").unwrap();
    assert!(image.contains("HOLDFAST_ADMIN=0.0.0.0:8556") && image.contains("HOLDFAST_IMAGE=1"), "{image}");
    let check = |admin: &str, is_image: bool| {
        let mut command = holdfast(&["check", "--offline", "--upstream", NOWHERE, "--admin", admin]);
        if is_image {
            command.env("HOLDFAST_IMAGE", "1");
        }
        output(command)
    };
    for (admin, is_image, warns) in [
        ("0.0.0.0:8556", true, false),
        ("0.0.0.0:8556", false, true),
        ("[::]:8556", true, false),
        ("192.0.2.1:8556", true, true),
        ("127.0.0.1:8556", false, false),
    ] {
        let ran = check(admin, is_image).await;
        let report = text(&ran.stdout);
        assert_eq!(ran.status.code(), Some(0), "{report}");
        assert_eq!(report.contains(&format!("admin: {admin} is open to other machines")), warns, "{report}");
    }
}

#[tokio::test]
async fn listeners_and_admin_commands_take_host_names() {
    let node = upstream::devchain().run().await;
    let arguments = ["serve", "--upstream", &node.url(), "--listen", "localhost:0", "--admin", "localhost:0"];
    let program = Program::start(holdfast(&arguments));
    let (rpc, admin) = (program.rpc_address().await, program.admin_address().await);
    assert!(rpc.ip().is_loopback() && admin.ip().is_loopback());
    let client = client::at(&format!("http://localhost:{}", rpc.port()));
    assert!(client.ask("eth_chainId", json!([])).await.is_ok());
    let admin = format!("localhost:{}", admin.port());
    success(|| holdfast(&["health", "--ready", "--admin", &admin])).await;
    let url = format!("http://localhost:{}", rpc.port());
    let warm = || holdfast(&["warm", "--blocks", "0..0", "--url", &url, "--admin", &admin]);
    assert!(success(warm).await.contains("blocks: "));

    for (wrong, said) in [
        ("8556", "expected an address and a port, such as 127.0.0.1:8556 or localhost:8556"),
        ("no-such-host.invalid:8556", "no-such-host.invalid:8556: "),
    ] {
        let ran = output(holdfast(&["health", "--admin", wrong])).await;
        assert_ne!(ran.status.code(), Some(0));
        assert!(text(&ran.stderr).contains(said), "{}", text(&ran.stderr));
    }
}

#[tokio::test]
async fn configured_endpoint_names_replace_urls() {
    let (node, other) = (upstream::devchain().run().await, upstream::devchain().run().await);
    let toml = |first: &str| {
        format!(
            "[[upstream.endpoints]]\nname = '{first}'\nurl = '{}'\n[[upstream.endpoints]]\nurl = '{}'\npriority = 1\n",
            node.url(),
            other.url()
        )
    };
    let path = file("names.toml", &toml("main node"));
    let process = process::serve_file(&path).run().await;
    let admin = async |path: &str| process.client().get(&format!("{}{path}", process.admin_url())).await;
    process.client().ask("eth_gasPrice", json!([])).await.unwrap();
    let named = async |name: &str| {
        let status = admin("/status").await.json();
        let endpoints = &status["endpoints"];
        assert_eq!(endpoints[0]["name"], name, "{status}");
        assert_eq!(endpoints[0]["url"], node.url(), "{status}");
        assert_eq!(endpoints[1]["name"], other.url(), "{status}");
        let metrics = admin("/metrics").await;
        assert!(metrics.text().contains(&format!("{{endpoint=\"{name}\"")), "{}", metrics.text());
    };
    named("main node").await;
    assert!(process.said().contains("main node"), "{}", process.said());

    reload(&process, &path, &toml("first")).await;
    process.client().ask("eth_gasPrice", json!([])).await.unwrap();
    named("first").await;

    let ran = output(holdfast(&["check", "--config", path.to_str().unwrap()])).await;
    let report = text(&ran.stdout);
    assert!(report.contains(&format!("upstream      first, {}", node.url())), "{report}");
}

#[tokio::test]
async fn check_prints_the_configuration_without_secrets() {
    let toml = "listen = 'localhost:8545'\n[cache.redis]\nurl = 'redis://:SECRET@127.0.0.1'\n\
                [[upstream.endpoints]]\nname = 'main'\nurl = 'http://127.0.0.1:1/SECRET'\n\
                headers = { x-key = 'SECRET', 'x.y' = { env = 'CARGO_PKG_NAME' } }\n";
    let config = file("print.toml", toml);
    let mut command = holdfast(&["check", "--print", "--config", config.to_str().unwrap()]);
    command.args(["--cache-size", "2GiB"]).env("HOLDFAST_HTTP__MAX_BATCH", "7");
    let ran = output(command).await;
    let printed = text(&ran.stdout);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    assert!(!printed.contains("SECRET"), "{printed}");
    for line in [
        "listen = \"127.0.0.1:8545\"",
        "cache.size = \"2.0 GiB\"",
        "cache.redis.url = \"(secret)\"",
        "http.max_batch = 7",
        "strict = false",
        "call_timeout = \"30s\"",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "{line} is not in\n{printed}");
    }
    assert!(printed.contains("\"x.y\" = { env = \"CARGO_PKG_NAME\" }"), "{printed}");

    // The output is a configuration file, apart from the masked secrets.
    let usable = printed.replace("redis.url = \"(secret)\"", "redis.url = \"redis://127.0.0.1\"");
    let usable = usable.replace("url = \"(secret)\"", "url = \"http://127.0.0.1:1\"");
    let again = file("printed.toml", &usable);
    let ran = output(holdfast(&["check", "--print", "--config", again.to_str().unwrap()])).await;
    assert_eq!(text(&ran.stdout), printed, "{}", text(&ran.stderr));

    let ran = output(holdfast(&["check", "--print"])).await;
    assert_eq!((ran.status.code(), text(&ran.stdout).as_str()), (Some(64), ""));
}

#[tokio::test]
async fn development_methods_reach_development_nodes_only() {
    for (chain_id, is_served) in [(31337, true), (1337, true), (4242, false)] {
        let node = upstream::devchain().config(|config| config.chain_id = chain_id).run().await;
        let process = process::serve(&node).run().await;
        let client = process.client();
        for method in ["anvil_mine", "evm_snapshot", "hardhat_mine"] {
            let answer = client.call(method, json!([])).await;
            assert_eq!(node.count(method) > 0, is_served, "{chain_id} {method}: {}", answer.text());
            let refusal =
                format!("the method {method} is not served here; to serve it, add it to methods.allow");
            assert_eq!(answer.message() == refusal, !is_served, "{chain_id} {method}: {}", answer.text());
            node.clear_calls();
            let body = client::call(method);
            let page = client.post().header("content-type", "application/json");
            let page = page.header("origin", "http://localhost:3000").body(body);
            let answer = client::Response::of(page).await;
            assert_eq!(answer.code(), Some(-32601), "{chain_id} {method}: {}", answer.text());
            assert_eq!(node.count(method), 0, "{chain_id} {method}");
        }
    }
    let node = upstream::devchain().config(|config| config.chain_id = 31337).run().await;
    let process = process::serve(&node).set("STRICT", "true").run().await;
    let answer = process.client().call("anvil_mine", json!([])).await;
    assert!(answer.message().contains("strict"), "{}", answer.text());
    assert_eq!(node.count("anvil_mine"), 0);
}

#[tokio::test]
async fn version_has_commit_and_features() {
    let said = async |flag: &str| text(&output(holdfast(&[flag])).await.stdout).trim().to_owned();
    let number = concat!("holdfast ", env!("CARGO_PKG_VERSION"));
    assert_eq!(said("-V").await, number);
    let version = said("--version").await;
    let rest = version.strip_prefix(number).unwrap_or_else(|| panic!("{version}"));
    let features = if cfg!(feature = "otlp") { "otlp" } else { "none" };
    assert!(
        rest.starts_with(" (commit ") && rest.ends_with(&format!(", features: {features})")),
        "{version}"
    );
}

#[tokio::test]
async fn build_script_names_the_commit_of_release_builds() {
    let script = file("build-script", "");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let mut compile = std::process::Command::new(rustc);
    compile.args(["--edition", "2024", "build.rs", "-o"]).arg(&script);
    let ran = output(compile).await;
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let run = async |profile: &str, commit: &str, path: &str| {
        let mut command = std::process::Command::new(&script);
        command.env("PROFILE", profile).env("BUILD_COMMIT", commit).env("PATH", path);
        let ran = output(command).await;
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        let said = text(&ran.stdout);
        said.lines().find_map(|line| Some(line.strip_prefix("cargo::rustc-env=BUILD_COMMIT=")?.to_owned()))
    };
    let path = std::env::var("PATH").unwrap();
    let mut git = std::process::Command::new("git");
    git.args(["rev-parse", "HEAD"]);
    if Path::new(".git").exists() {
        let head = text(&output(git).await.stdout);
        let named = run("release", "", &path).await.unwrap();
        assert!(named.len() >= 12 && head.starts_with(&named), "{named} {head}");
    }
    // The variable itself reaches the compiler.
    assert_eq!(run("release", "0123456789ab", &path).await, None);
    // Without Git, and in debug builds, the commit is unknown.
    assert_eq!(run("release", "", "/nowhere").await, None);
    assert_eq!(run("debug", "", &path).await, None);
}

#[tokio::test]
async fn shell_variable_in_the_url_of_a_node_is_an_error() {
    for url in ["https://node.example/${KEY}", "${URL}", "$URL"] {
        let mut by_variable = holdfast(&["check", "--offline"]);
        by_variable.env("HOLDFAST_UPSTREAM_URL", url);
        for command in [by_variable, holdfast(&["check", "--offline", "--upstream", url])] {
            let ran = output(command).await;
            let said = text(&ran.stderr);
            assert_eq!(ran.status.code(), Some(64), "{url}: {said}");
            assert!(said.contains("does not expand ${") && said.contains("give the whole URL"), "{said}");
        }
    }
}
