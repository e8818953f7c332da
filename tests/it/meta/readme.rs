//! Tests that run the commands in the README, except those that `tests/run` runs.

use std::{fs, path::Path};

use serde_json::json;
use strum::VariantArray;

use crate::support::{
    client,
    program::{Program, holdfast, output, text},
    proxy, tools, upstream,
};

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

fn commands() -> Vec<String> {
    let readme = read("README.md");
    let blocks = readme.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let lines = blocks.flat_map(str::lines).map(|line| line.split(" # ").next().unwrap_or(line).trim_end());
    lines.map(str::to_owned).collect()
}

/// Runs a `holdfast` command of the README with the node and the ports of this test.
async fn run(command: &str, node: &upstream::Node) {
    let mut words = command.split_whitespace().peekable();
    let environment = words.next_if(|word| word.contains('=')).and_then(|pair| pair.split_once('='));
    assert_eq!(words.next(), Some("holdfast"), "{command}");
    let arguments: Vec<_> = words
        .map(|word| word.replace("http://127.0.0.1:8545", &node.url()).replace("19000000", "1"))
        .collect();
    let mut arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let url = node.url();
    if arguments.contains(&"--config") {
        arguments.extend(["--upstream", &url]);
    }
    // These commands need a running proxy.
    let running = match arguments[0] {
        "inspect" | "warm" => Some(proxy::new().upstream(node).run().await),
        _ => None,
    };
    let admin = running.as_ref().map(|proxy| proxy.app.admin_address().to_string());
    arguments.extend(admin.iter().flat_map(|admin| ["--admin", admin]));
    let clients = running.as_ref().map(|proxy| format!("http://{}", proxy.address()));
    if arguments[0] == "warm" {
        arguments.extend(clients.iter().flat_map(|clients| ["--url", clients]));
    }
    if arguments[0] == "serve" {
        arguments.extend(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    }
    let mut process = holdfast(&arguments);
    process.current_dir(env!("CARGO_MANIFEST_DIR"));
    if let Some((name, _)) = environment {
        process.env(name, &url);
    }
    if arguments[0] == "serve" {
        let program = Program::start(process);
        program.says("serves clients").await;
        program.says("upstream identified").await;
    } else {
        let ran = output(process).await;
        assert!(ran.status.success(), "{command}: {}{}", text(&ran.stdout), text(&ran.stderr));
    }
}

#[tokio::test]
async fn readme_commands_work() {
    let node = upstream::devchain().blocks(3, 2).run().await;
    let in_tests_run = read("tests/run") + &read("tests/demo");
    let commands = commands();
    assert!(commands.len() >= 7, "{commands:?}");
    for command in commands {
        match command.as_str() {
            // The script that runs this test.
            "tests/run" => {}
            "cargo run --release -- demo" => {
                assert!(in_tests_run.contains("cargo run --quiet --release --locked -- demo"));
            }
            "cargo install --profile dist --path ." => {
                assert!(in_tests_run.contains("cargo install --quiet --locked --profile dist --path ."));
            }
            curl if curl.starts_with("curl ") => {
                let Some(_) = tools::curl("readme_commands_work") else { continue };
                let proxy = proxy::new().upstream(&node).run().await;
                let mut shell = std::process::Command::new("sh");
                shell.arg("-c").arg(curl.replace("http://127.0.0.1:8555", &proxy.url()));
                let answer: serde_json::Value = serde_json::from_slice(&output(shell).await.stdout).unwrap();
                assert_eq!(answer["result"]["number"], "0x3", "{curl}");
            }
            // Benchmarks take long and measure nothing on a busy machine, so the test only checks that they exist.
            bench if bench.contains("bench") => {
                let words: Vec<_> = bench.split_whitespace().collect();
                let there = match words[..] {
                    ["cargo", "bench", "--bench", name, ..] => {
                        read("Cargo.toml").contains(&format!("name = \"{name}\""))
                    }
                    [script, ..] => Path::new(env!("CARGO_MANIFEST_DIR")).join(script).is_file(),
                    [] => false,
                };
                assert!(there, "{bench}");
            }
            command => run(command, &node).await,
        }
    }
}

/// The command is in a table cell of the README, not in a code block.
#[tokio::test]
async fn readme_cast_command_works() {
    let Some(cast) = tools::cast("readme_cast_command_works") else { return };
    let readme = read("README.md");
    let line = readme.split('`').find(|code| code.starts_with("cast ")).expect("the README names cast");
    let node = upstream::devchain().blocks(3, 2).run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let line = line.replace("http://127.0.0.1:8555", &proxy.url());
    let mut command = std::process::Command::new(cast);
    command.args(line.split_whitespace().skip(1));
    let ran = output(command).await;
    let said = text(&ran.stdout);
    assert!(ran.status.success(), "{said}{}", text(&ran.stderr));
    assert!(said.contains(&format!("{:#x}", node.head().hash)), "{said}");
}

#[tokio::test]
async fn all_error_codes_are_documented() {
    let page = read("docs/configuration.md");
    for code in holdfast::jsonrpc::Code::VARIANTS {
        assert!(page.contains(&format!("| {} |", code.number())), "{code:?}");
    }
    let node = upstream::devchain().run().await;
    let proxy = proxy::new().upstream(&node).run().await;
    let refused = client::http(&proxy).call("debug_traceTransaction", json!([])).await;
    assert_eq!((refused.status.as_u16(), refused.code()), (200, Some(-32601)));
}
