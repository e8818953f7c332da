//! The command line.

use std::path::Path;

use holdfast::devchain::{Fault, Lie};
use serde_json::json;

use crate::support::{
    authority::Authority,
    client,
    program::{Program, file, holdfast, holdfast_in_shell, output, success, text},
    proxy,
    redis::redis,
    tiers::directory,
    upstream,
};

#[tokio::test]
async fn check_reports_the_nodes_capabilities() {
    let node = upstream::devchain().blocks(20, 2).run().await;
    let ran = output(holdfast(&["check", "--upstream", &node.url()])).await;
    let report = text(&ran.stdout);
    assert_eq!(ran.status.code(), Some(0), "{report}");
    for expected in [
        "configuration ok".to_owned(),
        format!("upstream      {}", node.url()),
        "reachable     yes".to_owned(),
        "client        holdfast-devchain/".to_owned(),
        format!("chain id      {}", node.config().chain_id),
        "head          block 20".to_owned(),
        "tags          latest 20, safe 12, finalized 4, earliest 0, pending 21".to_owned(),
        "also          eth_getBlockReceipts yes, eth_feeHistory yes, eth_getLogs yes".to_owned(),
        "operations    all six".to_owned(),
    ] {
        assert!(report.contains(&expected), "{expected} is not in\n{report}");
    }
}

#[tokio::test]
async fn check_names_the_fault_of_a_node() {
    let node = upstream::devchain().run().await;
    let (url, https) = (node.url(), node.url().replace("http:", "https:"));
    let id = format!("{:#x}", node.config().chain_id);
    for (arguments, code, said) in [
        (&[&*url, "--chain-id", &id][..], 0, "reachable     yes"),
        (&[&url, "--chain-id", "1"], 1, "but chain_id is 1"),
        (&[&https], 1, "cannot connect: the server does not speak TLS; if the node"),
        (&["http://127.0.0.1:1"], 1, "reachable     no: "),
    ] {
        let ran = output(holdfast(&[&["check", "--upstream"], arguments].concat())).await;
        let report = text(&ran.stdout);
        assert_eq!(ran.status.code(), Some(code), "{report}");
        assert!(report.contains(said), "{report}");
    }
}

#[tokio::test]
async fn check_quotes_a_node_that_refuses() {
    let node = upstream::devchain().run().await;
    let refusal = Fault::Error { code: -32002, message: "invalid \u{1b}[31mproject id".to_owned() };
    node.fail(refusal).any().always();
    let ran = output(holdfast(&["check", "--upstream", &node.url()])).await;
    let report = text(&ran.stdout);
    assert_eq!(ran.status.code(), Some(1));
    assert!(report.contains("chain id      no valid answer: invalid"), "{report}");
    assert!(!report.contains('\u{1b}'), "{report:?}");

    // The program does not use a malformed hash in further calls.
    node.clear_faults();
    node.fail(Lie::Field("hash".to_owned(), json!("\","))).on("eth_getBlockByNumber").always();
    let ran = output(holdfast(&["check", "--upstream", &node.url()])).await;
    assert_eq!(ran.status.code(), Some(1));
    assert!(text(&ran.stdout).contains("head          no valid answer"), "{}", text(&ran.stdout));
}

#[tokio::test]
async fn check_tests_disk_and_redis() {
    let Some(server) = redis("check_tests_disk_and_redis") else { return };
    let mut server = server.password("open-sesame").run().await;
    let node = upstream::devchain().run().await;
    let url = |password: &str| server.url().replace("open-sesame", password);
    let check = async |redis: &str, directory: &str| {
        let arguments = ["check", "--upstream", &node.url(), "--redis", redis, "--data", directory];
        let ran = output(holdfast(&arguments)).await;
        let report = text(&ran.stdout);
        assert!(!report.contains("sesame"), "{report}");
        (ran.status.code(), report)
    };
    let directory = directory();
    let directory = directory.to_str().unwrap();

    let mut checked = check(&server.url(), directory).await;
    for _ in 0..10 {
        // The check has the time-outs of normal service, which a busy machine may exceed.
        if checked.0 == Some(0) {
            break;
        }
        checked = check(&server.url(), directory).await;
    }
    let (code, report) = checked;
    assert_eq!(code, Some(0), "{report}");
    assert!(report.contains(&format!("directory     {directory}, which will be created")), "{report}");
    assert!(report.contains("usable        yes, in "), "{report}");
    assert!(!Path::new(directory).exists(), "the check changes nothing");
    assert!(server.raw().await.keys().await.is_empty(), "the check changes nothing");

    let (code, report) = check(&url("shut-sesame"), directory).await;
    assert_eq!(code, Some(1), "{report}");
    assert!(report.contains("usable        no: ") && report.contains("cannot connect"), "{report}");

    let _: () = server.raw().await.ask(&[b"ACL", b"SETUSER", b"default", b"-getrange"]).await;
    let (code, report) = check(&server.url(), "Cargo.toml").await;
    assert_eq!(code, Some(1), "{report}");
    assert!(report.contains("directory     \"Cargo.toml\" is not a directory"), "{report}");
    assert!(report.to_lowercase().contains("getrange"), "{report}");

    server.kill();
    let (code, report) = check(&server.url(), directory).await;
    assert_eq!(code, Some(1), "{report}");
    assert!(report.contains("operations    all six"), "the node is checked all the same: {report}");
}

#[tokio::test]
async fn closed_pipe_does_not_fail_a_report() {
    let node = upstream::devchain().run().await;
    let shell = holdfast_in_shell(
        r#"{ "$0" "$@"; echo "exit $?" >&2; } | true"#,
        &["check", "--upstream", &node.url()],
    );
    assert_eq!(text(&output(shell).await.stderr), "exit 0\n");
}

#[tokio::test]
async fn health_asks_a_running_instance() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let admin = proxy.app.admin_address().to_string();
    assert!(success(|| holdfast(&["health", "--admin", &admin])).await.contains("live"));
    assert!(success(|| holdfast(&["health", "--ready", "--admin", &admin])).await.contains("ready"));
    let ran = output(holdfast(&["health", "--admin", "127.0.0.1:1"])).await;
    assert_eq!(ran.status.code(), Some(1));
    let all = text(&ran.stdout) + &text(&ran.stderr);
    assert!(all.contains("refused"), "{all}");

    // In a container, the instance and its probe both take the address from the environment.
    let probe = || {
        let mut probe = holdfast(&["health", "--ready"]);
        probe.env("HOLDFAST_ADMIN", &admin);
        probe
    };
    assert_eq!(success(probe).await, "ready\n");

    // While the provider limits the rate, the instance serves its cache.
    node.fail(Fault::RateLimited { retry_after: None }).always();
    client::http(&proxy).call("eth_gasPrice", json!([])).await;
    assert!(success(probe).await.starts_with("degraded: "));
    node.clear_faults();

    let stranger = proxy::new().upstream(&node).config(|config| config.chain_id = Some(1)).though_not_ready();
    let stranger = stranger.run().await;
    let admin = stranger.app.admin_address().to_string();
    success(|| holdfast(&["health", "--admin", &admin])).await;
    assert_eq!(output(holdfast(&["health", "--ready", "--admin", &admin])).await.status.code(), Some(1));
}

#[tokio::test]
async fn configuration_errors_are_named_and_exit_with_64() {
    let unknown = file("unknown.toml", "[http]\nmax_bodies = 5\n");
    let upstreams = file("upstreams.toml", "[[upstream.endpoints]]\nurl = { env = 'NO_SUCH_VARIABLE' }\n");
    let header = file(
        "header.toml",
        "[[upstream.endpoints]]\nurl = 'http://127.0.0.1:1'\nheaders = { 'not a name' = 'SECRET' }\n",
    );
    let (unknown, upstreams, header) =
        (unknown.to_str().unwrap(), upstreams.to_str().unwrap(), header.to_str().unwrap());
    for (arguments, said) in [
        (vec!["serve"], "upstream.endpoints: no node is configured; use --upstream"),
        (vec!["serve", "--config", "no/such/file.toml"], "no/such/file.toml: no such file"),
        (
            vec!["serve", "--config", unknown],
            "unknown.toml: http.max_bodies: unknown key; valid keys here are",
        ),
        (
            vec!["serve", "--config", upstreams],
            "upstreams.toml: upstream.endpoints.0: url: the environment variable NO_SUCH_VARIABLE",
        ),
        (
            vec!["serve", "--config", header],
            "header.toml: upstream.endpoints.0: headers: \"not a name\" is not a valid HTTP header name",
        ),
        (
            vec!["serve", "--upstream", "ws://127.0.0.1:1/SECRET"],
            "--upstream: url: the scheme must be http or https",
        ),
        (vec!["serve", "--upstream", "SECRET"], "--upstream: url: not a URL such as"),
        (
            vec!["serve", "--upstream", "http://127.0.0.1:1", "--listen", "here"],
            "expected an address and a port",
        ),
        (vec!["serve", "--upstream", "http://127.0.0.1:1", "--log-level", "chatty"], "log.level: \"chatty\""),
        (vec!["serve", "--upsteam", "http://127.0.0.1:1"], "--upstream"),
        (vec!["serve", "--config", "tests"], "tests: this is a directory; name the file in it"),
        (
            vec!["serve", "--upstream", "http://127.0.0.1:1", "--max-staleness", "10"],
            "chain.max_staleness: expected a time such as \"500ms\", \"10s\"",
        ),
        (
            vec!["serve", "--upstream", "http://127.0.0.1:1", "--chain-id", "mainnet"],
            "expected a number such as 1, 11155111 or 0x1",
        ),
        (
            vec!["serve", "--upstream", "http://localhost:8555"],
            "upstream.endpoints.0: 127.0.0.1:8555 is Holdfast's own address (listen); name the node",
        ),
        (
            vec!["serve", "--upstream", "http://127.0.0.1:8556/"],
            "upstream.endpoints.0: 127.0.0.1:8556 is Holdfast's own address (admin); name the node",
        ),
        (
            vec!["serve", "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:8556"],
            "admin: 127.0.0.1:8556 is the address of the client listener",
        ),
        (
            vec![
                "serve",
                "--upstream",
                "http://127.0.0.1:1/SECRET",
                "--upstream",
                "http://127.0.0.1:1/SECRET",
            ],
            "upstream.endpoints.1: has the same url and headers as upstream.endpoints.0; leave one out",
        ),
        (vec!["check"], "upstream.endpoints: no node is configured; use --upstream"),
        (vec!["check", "--upstream", "http://127.0.0.1:8555"], "is Holdfast's own address"),
        (vec!["demo", "--log-level", "chatty"], "log.level: \"chatty\""),
        (vec!["frobnicate"], "unrecognized subcommand"),
        (vec!["export", "blocks.hf"], "docs/operating.md#copying-the-data-directory"),
        (vec!["import", "blocks.hf"], "docs/operating.md#copying-the-data-directory"),
        (vec![], "Usage"),
    ] {
        let ran = output(holdfast(&arguments)).await;
        let said_it = text(&ran.stderr);
        assert_eq!(ran.status.code(), Some(64), "{arguments:?}: {said_it}");
        assert!(said_it.contains(said), "{arguments:?}: expected {said}\n{said_it}");
        assert!(!said_it.contains("SECRET"), "{said_it}");
    }
    let mut command = holdfast(&["serve", "--upstream", "http://127.0.0.1:1"]);
    command.env("HOLDFAST_HTTP__MAX_BATCH", "none");
    let ran = output(command).await;
    assert_eq!(ran.status.code(), Some(64));
    let said = text(&ran.stderr);
    assert!(said.contains("environment") && said.contains("http.max_batch: expected"), "{said}");
    let mut command = holdfast(&["serve", "--upstream", "http://127.0.0.1:1"]);
    command.env("HOLDFAST_LISTEN", "8555");
    let said = text(&output(command).await.stderr);
    assert!(said.contains("expected an address and a port, such as 127.0.0.1:8555"), "{said}");
}

#[tokio::test]
async fn unused_data_directories_are_warned_about() {
    let node = upstream::devchain().run().await;
    let data = directory();
    for unused in ["v1-1-d4", "holdfast/v3-1-d4", "lost+found/x"] {
        std::fs::create_dir_all(data.join(unused)).unwrap();
    }
    let serve = |data: &Path| {
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream"];
        let mut command = holdfast(&arguments);
        command.arg(node.url()).arg("--data").arg(data);
        Program::start(command)
    };
    let mut program = serve(&data);
    program.says("serves clients").await;
    let said = program.said();
    assert!(said.contains("v1-1-d4") && said.contains("format of another version"), "{said}");
    assert!(said.contains("/holdfast") && said.contains("set cache.disk.path to it"), "{said}");
    assert!(!said.contains("lost+found"), "{said}");
    program.signal(rustix::process::Signal::TERM);
    program.exit_code().await;

    let mut program = serve(&data.join("holdfast"));
    program.says("serves clients").await;
    assert!(!program.said().contains("data directory"), "{}", program.said());
    program.signal(rustix::process::Signal::TERM);
    program.exit_code().await;
}

#[tokio::test]
async fn url_in_the_wrong_place_is_not_shown() {
    const KEY: &str = "AbCdEf0123456789";
    let url = format!("https://node.example/v2/{KEY}");
    let redis = file("redis.toml", &format!("[cache]\nredis = 'redis://:{KEY}@h'\n"));
    let table = file("table.toml", &format!("cache = 'redis://:{KEY}@h'\n"));
    let check = |config: &Path| {
        holdfast(&["check", "--offline", "--upstream", "http://x", "--config", config.to_str().unwrap()])
    };
    for (command, hint) in [
        (holdfast(&["serve", &url]), "--upstream URL"),
        (holdfast(&["check", &url]), "--upstream URL"),
        (holdfast(&[&url]), "--upstream URL"),
        (check(&redis), "cache.redis: expected a table, found text"),
        (check(&table), "cache: expected a table, found text"),
    ] {
        let ran = output(command).await;
        let said = text(&ran.stdout) + &text(&ran.stderr);
        assert_eq!(ran.status.code(), Some(64), "{said}");
        assert!(said.contains(hint) && !said.contains(KEY), "{said}");
    }
}

#[tokio::test]
async fn check_refuses_the_same_configurations_as_serve() {
    let node = upstream::devchain().run().await;
    let authority = Authority::new();
    let (one, other) = (authority.pair(), authority.pair());
    let tls =
        |cert: &Path, key: &Path| format!("[tls]\ncert = '{}'\nkey = '{}'\n", cert.display(), key.display());
    for (toml, problem) in [
        (tls(&one.cert, &one.key), None),
        (tls(&one.cert, &other.key), Some("tls.key: the key in")),
        (tls(&one.cert, &one.cert), Some("tls.key: there is no private key in")),
        (tls(&one.key, &one.key), Some("tls.cert: there is no certificate in")),
        (tls(Path::new("no/such.pem"), &one.key), Some("tls.cert: cannot read no/such.pem")),
        ("[[http.keys]]\nname = 'a'\nsha256 = 'abc'\n".to_owned(), Some("http.keys.0.sha256: expected")),
    ] {
        let config = file("holdfast.toml", &toml);
        let ran =
            output(holdfast(&["check", "--upstream", &node.url(), "--config", config.to_str().unwrap()]))
                .await;
        let (report, said) = (text(&ran.stdout), text(&ran.stderr));
        match problem {
            None => assert_eq!(ran.status.code(), Some(0), "{toml}: {report}{said}"),
            Some(problem) => {
                assert_eq!(ran.status.code(), Some(64), "{toml}: {report}{said}");
                assert!(said.contains(problem), "{toml}: {said}");
                assert!(!report.contains("ok"), "{toml}: {report}");
            }
        }
    }
}

#[tokio::test]
async fn offline_check_needs_only_a_valid_configuration() {
    let nobody = ["check", "--offline", "--upstream", "http://127.0.0.1:1"];
    let ran = output(holdfast(&nobody)).await;
    assert_eq!((ran.status.code(), text(&ran.stdout).as_str()), (Some(0), "configuration ok\n"));

    let unknown = file("unknown.toml", "no_such_key = 5\n");
    let ran = output(holdfast(&[&nobody[..], &["--config", unknown.to_str().unwrap()]].concat())).await;
    assert_eq!(ran.status.code(), Some(64));
    // The check also fails without any endpoint.
    assert_eq!(output(holdfast(&["check", "--offline"])).await.status.code(), Some(64));
}

#[tokio::test]
async fn every_shell_completes_every_command() {
    let help = text(&output(holdfast(&["--help"])).await.stdout);
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<_> = commands
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.contains(&"serve") && commands.contains(&"completions"), "{help}");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ran = output(holdfast(&["completions", shell])).await;
        assert_eq!(ran.status.code(), Some(0), "{shell}");
        let script = text(&ran.stdout);
        for word in commands.iter().chain(&["--upstream", "--listen"]) {
            // Fish and elvish name flags without their dashes in places.
            assert!(script.contains(word.trim_start_matches('-')), "{shell}: {word}");
        }
    }
    assert_eq!(output(holdfast(&["completions", "dos"])).await.status.code(), Some(64));
    let help = text(&output(holdfast(&["completions", "--help"])).await.stdout);
    assert!(help.contains("Examples:"), "{help}");
}

#[tokio::test]
async fn failed_output_is_an_error() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    let node = upstream::devchain().run().await;
    let url = node.url();
    for arguments in [
        vec!["key", "new"],
        vec!["check", "--upstream", &url],
        vec!["demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"],
        vec!["completions", "bash"],
        vec!["--help"],
        vec!["--version"],
    ] {
        let mut command = holdfast(&arguments);
        command.stdout(std::fs::File::options().write(true).open("/dev/full").unwrap());
        let ran = output(command).await;
        assert_eq!(ran.status.code(), Some(1), "{arguments:?}");
        let said = text(&ran.stderr);
        assert!(said.contains("holdfast: cannot write the output: "), "{arguments:?}: {said}");
    }
    // A key that could not be shown is useless, so its configuration lines are not written either.
    let mut command = holdfast(&["key", "new"]);
    command.stderr(std::fs::File::options().write(true).open("/dev/full").unwrap());
    let ran = output(command).await;
    assert_eq!((ran.status.code(), text(&ran.stdout).as_str()), (Some(1), ""));
}

#[tokio::test]
async fn sighup_during_start_does_not_kill_the_program() {
    let node = upstream::devchain().run().await;
    let secret = file("url", "");
    std::fs::remove_file(&secret).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&secret).status();
    assert!(made.unwrap().success());
    let toml = format!(
        "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\n[[upstream.endpoints]]\nurl = {{ file = '{}' }}\n",
        secret.display()
    );
    let config = file("holdfast.toml", &toml);
    let program = Program::start(holdfast(&["serve", "--config", config.to_str().unwrap()]));
    let (url, id) = (node.url(), program.id());
    std::thread::spawn(move || {
        // Opening the pipe blocks until the program reads its configuration.
        let mut pipe = std::fs::File::options().write(true).open(&secret).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::HUP).unwrap();
        // Replaces the pipe by a file for the reload, which reads the secret again.
        let next = file("url", &url);
        std::fs::rename(next, &secret).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        std::io::Write::write_all(&mut pipe, url.as_bytes()).unwrap();
    });
    program.says("serves clients").await;
    // The signal that came before the start was complete is not lost.
    program.says("configuration reloaded").await;
}

#[tokio::test]
async fn health_names_the_wrong_kind_of_listener() {
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (other, silent) =
        (listener.local_addr().unwrap().to_string(), mute.local_addr().unwrap().to_string());
    tokio::spawn(async move {
        for greeting in ["SSH-2.0-OpenSSH_9.9\r\n", "", "220 mail.example.org ESMTP\r\n"].into_iter().cycle()
        {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 1024];
            let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut head).await;
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, greeting.as_bytes()).await;
        }
    });
    let plain = proxy.app.admin_address().to_string();
    let rpc = proxy.address().to_string();
    for (arguments, said) in [
        (vec!["--admin", &other], "this address does not speak HTTP; use the address of the admin listener"),
        (
            vec!["--admin", &other],
            "the connection was closed without an answer; use the address of the admin",
        ),
        (vec!["--admin", &other, "--tls"], "this address does not speak TLS"),
        (vec!["--admin", &plain, "--tls"], "this address does not speak TLS"),
        (vec!["--admin", &silent], "no answer within 2 s"),
        (vec!["--admin", &rpc], "this is not the admin listener (it answers /live with HTTP status 405"),
        (vec!["--admin", &rpc, "--ready"], "; use its address, which is 127.0.0.1:8556 unless admin is set"),
    ] {
        let ran = output(holdfast(&[&["health"][..], &arguments].concat())).await;
        assert_eq!(ran.status.code(), Some(1));
        assert!(text(&ran.stderr).contains(said), "{arguments:?}: {}", text(&ran.stderr));
    }
    drop(mute);
}

#[tokio::test]
async fn taken_port_is_named_with_a_way_out() {
    let node = upstream::devchain().run().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (free, taken) = ("127.0.0.1:0", listener.local_addr().unwrap().to_string());
    let url = node.url();
    let serve = ["serve", "--upstream", &url];
    let free_ports = "holdfast demo --listen 127.0.0.1:0 --admin 127.0.0.1:0";
    for (command, flag, other, way_out) in [
        (&serve[..], "--listen", "--admin", "choose another with --listen"),
        (&serve[..], "--admin", "--listen", "choose another with --admin"),
        (&["demo"], "--listen", "--admin", free_ports),
        (&["demo"], "--admin", "--listen", free_ports),
    ] {
        let ran = output(holdfast(&[command, &[flag, &taken, other, free]].concat())).await;
        assert_eq!(ran.status.code(), Some(1), "{command:?} {flag}");
        let said = text(&ran.stderr);
        assert!(
            said.contains(&format!("holdfast: cannot listen on {taken}: Address already in use")),
            "{said}"
        );
        assert!(said.contains("tip: another program, perhaps another Holdfast, uses this port; "), "{said}");
        assert!(said.contains(way_out), "{said}");
    }
    // The way out of the demo works.
    let mut words = free_ports.split_whitespace();
    assert_eq!(words.next(), Some("holdfast"));
    let demo = Program::start(holdfast(&words.collect::<Vec<_>>()));
    demo.says("Press ctrl-c to stop").await;
}

#[tokio::test]
async fn environment_and_file_configure_the_program() {
    let node = upstream::devchain().blocks(1, 1).run().await;
    let config = file(
        "strict.toml",
        "strict = true\nlisten = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\n[log]\nformat = 'json'\n",
    );
    let mut command = holdfast(&["serve"]);
    command.env("HOLDFAST_CONFIG", config).env("HOLDFAST_UPSTREAM_URL", node.url());
    command.env("HOLDFAST_HTTP__MAX_BATCH", "2");
    // Kubernetes sets these variables in the pods of a service of this name; they are not configuration keys.
    for (name, value) in [
        ("HOLDFAST_PORT", "tcp://10.0.0.1:8555"),
        ("HOLDFAST_PORT_8555_TCP_ADDR", "10.0.0.1"),
        ("HOLDFAST_SERVICE_HOST", "10.0.0.1"),
        ("HOLDFAST_SERVICE_PORT_RPC", "8555"),
        ("HOLDFAST_ADMIN_SERVICE_PORT", "8556"),
    ] {
        command.env(name, value);
    }
    let mut program = Program::start(command);
    let line = program.line("serves clients").await;
    let _: serde_json::Value = serde_json::from_str(&line).expect("the log is JSON");
    let client = client::at(&format!("http://{}", program.rpc_address().await));

    assert!(client.ask("eth_getBlockByNumber", json!(["0x1", false])).await.is_ok());
    assert_eq!(client.call("eth_blockNumber", json!([])).await.code(), Some(-32601));
    assert_eq!(client.send("[1,2,3]").await.code(), Some(-32600));

    program.signal(rustix::process::Signal::TERM);
    assert_eq!(program.exit_code().await, Some(0));
    assert!(program.said().contains("stopped"));
}

#[tokio::test]
async fn help_is_printed() {
    for arguments in
        [&["--help"][..], &["serve", "--help"], &["demo", "-h"], &["check", "--help"], &["health", "--help"]]
    {
        let ran = output(holdfast(arguments)).await;
        assert_eq!(ran.status.code(), Some(0), "{arguments:?}");
        assert!(text(&ran.stdout).contains("Usage: holdfast"), "{}", text(&ran.stdout));
        if arguments[0] == "serve" {
            let said = text(&ran.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(said.contains("give it several times for several nodes"), "{said}");
        }
    }
}
