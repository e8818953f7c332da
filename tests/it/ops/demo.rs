//! `holdfast demo`, on a terminal and elsewhere.

use std::{fs, path::Path, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    client, eventually,
    program::{Program, holdfast, output, text},
    tools,
};

/// Width of the terminal for which the lines are written.
const COLUMNS: u16 = 100;

/// The page that shows a recording of the demo.
const PAGE: &str = "docs/quick-start.md";

const BEGIN: &str = "<!-- demo: begin -->\n```text\n";
const END: &str = "```\n<!-- demo: end -->";

/// Returns the command on free ports, with a reorg every other block.
fn demo() -> std::process::Command {
    holdfast(&["demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--reorg-every", "2"])
}

fn on_terminal(columns: u16) -> Program {
    let mut command = demo();
    command.env("TERM", "xterm");
    Program::on_terminal(command, columns)
}

/// Returns the lines that a terminal shows after this output. Fails if a line is wider than the terminal, or if the
/// output contains other escape codes than the erasure of a line.
fn screen(said: &str, columns: u16) -> Vec<String> {
    let mut lines = vec![Vec::new()];
    let mut column = 0;
    for (at, piece) in said.split("\x1b[2K").enumerate() {
        if at > 0 {
            assert_eq!(column, 0, "erased in the middle of a line");
            lines.last_mut().unwrap().clear();
        }
        for character in piece.chars() {
            match character {
                '\n' => lines.push(Vec::new()),
                '\r' => column = 0,
                _ => {
                    assert!(!character.is_control(), "{character:?} in {said:?}");
                    let line: &mut Vec<char> = lines.last_mut().unwrap();
                    line.truncate(column);
                    line.push(character);
                    column += 1;
                    assert!(
                        column <= usize::from(columns),
                        "{column} columns: {}",
                        line.iter().collect::<String>()
                    );
                }
            }
        }
    }
    lines.into_iter().map(|line| line.into_iter().collect()).collect()
}

/// Returns the URL in the line that begins with this name.
fn url(said: &str, name: &str) -> String {
    let line = said.lines().find_map(|line| line.trim().strip_prefix(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in {said}"));
    line.split_whitespace().next().unwrap().to_owned()
}

async fn status(said: &str) -> Value {
    let admin = url(said, "status page");
    client::at(&admin).get(&format!("{admin}/status")).await.json()
}

/// Returns the rest of the line after `start`, counted from the line that contains `heading`.
fn after<'a>(lines: &'a [String], heading: &str, start: &str) -> &'a str {
    let mut lines = lines.iter().skip_while(|line| !line.contains(heading));
    let line = lines.find_map(|line| line.trim().strip_prefix(start));
    line.unwrap_or_else(|| panic!("no {start:?} after {heading:?}")).trim()
}

#[tokio::test]
async fn demo_tells_a_story_with_real_answers() {
    let mut demo = on_terminal(COLUMNS);
    demo.says("upstream calls saved").await;
    let said = demo.said();
    let lines = screen(&said, COLUMNS);

    // The same call twice.
    assert!(
        after(&lines, "1. A miss", "first").ends_with("cache-status: holdfast; fwd=miss; stored"),
        "{said}"
    );
    assert!(
        after(&lines, "1. A miss", "second").ends_with("cache-status: holdfast; hit; detail=block"),
        "{said}"
    );

    // The block at a number, before and after a reorg. The development chain's node agrees.
    let call = "eth_getBlockByNumber";
    let number = after(&lines, "2. A reorg", call).split('"').nth(1).unwrap();
    let [before, now] =
        ["before   hash", "after    hash"].map(|row| after(&lines, call, row).split('…').next().unwrap());
    assert_ne!(before, now);
    let node = client::at(&url(&said, "node"));
    let truth = node.call(call, json!([number, false])).await.json();
    assert!(truth["result"]["hash"].as_str().unwrap().starts_with(now), "{now} {truth}");

    // The receipt of a transaction that the reorg moved.
    let receipt = "eth_getTransactionReceipt";
    let [place, moved] = ["before   in block", "after    in block"].map(|row| after(&lines, receipt, row));
    assert!(place.contains(before), "{place}");
    let (height, hash) = moved.split_once(", ").unwrap();
    let height: u64 = height.parse().unwrap();
    let block = node.call(call, json!([format!("{height:#x}"), false])).await.json();
    assert!(
        block["result"]["hash"].as_str().unwrap().starts_with(hash.split('…').next().unwrap()),
        "{moved} {block}"
    );
    let transaction = after(&lines, "2. A reorg", receipt).split(['"', '…']).nth(1).unwrap();
    let transactions = block["result"]["transactions"].as_array().unwrap();
    assert!(
        transactions.iter().any(|other| other.as_str().unwrap().starts_with(transaction)),
        "{transaction} {block}"
    );

    // The old block, by its hash.
    assert!(after(&lines, "The old block stays readable", "now      hash").starts_with(before), "{said}");

    demo.signal(Signal::INT);
    assert_eq!(demo.exit_code().await, Some(0));
}

#[tokio::test]
async fn demo_updates_one_score_line_and_ends_it() {
    let mut demo = on_terminal(COLUMNS);
    demo.says("reorg of ").await;
    eventually("calls of the demo itself", async || {
        status(&demo.said()).await["calls"].as_u64().unwrap() > 50
    })
    .await;
    let seen = status(&demo.said()).await;
    assert!(seen["reorgs"]["count"].as_u64().unwrap() >= 2, "{seen}");
    // The score counts the same calls as the status page.
    let calls = |said: &str| {
        let last = said.rsplit(" calls · ").nth(1).unwrap();
        last.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    eventually("a new score", async || calls(&demo.said()) >= seen["calls"].as_u64().unwrap()).await;

    demo.signal(Signal::INT);
    assert_eq!(demo.exit_code().await, Some(0));
    let said = demo.said();
    assert!(said.matches("\r\x1b[2Kblock ").count() >= 3, "{said:?}");
    let lines = screen(&said, COLUMNS);
    let scores: Vec<_> = lines.iter().filter(|line| line.contains("upstream calls saved")).collect();
    assert_eq!(scores.len(), 1, "{lines:#?}");
    assert_eq!(
        form(scores[0]),
        "block N · N calls · N hits (N %) · N upstream calls saved · hits T, misses T"
    );
    // The score is the last line, and the shell's prompt comes after it.
    assert_eq!(lines[lines.len() - 2..], [scores[0].clone(), String::new()]);
    let announced = lines.iter().find(|line| line.starts_with("reorg of ")).unwrap();
    let [_, before, after] = announced.split("0x").collect::<Vec<_>>()[..] else { panic!("{announced}") };
    assert_ne!(before[..8], after[..8], "{announced}");
}

#[tokio::test]
async fn score_fits_a_narrow_terminal() {
    let demo = on_terminal(40);
    demo.says("\r\x1b[2Kblock ").await;
    // Only the score is rewritten, so only it must not wrap.
    let said = demo.said();
    let score = said.rsplit("\r\x1b[2K").next().unwrap();
    assert!(score.contains("calls"), "{score}");
    screen(score, 40);
}

#[tokio::test]
async fn printed_call_is_a_miss_and_then_a_hit() {
    let Some(_) = tools::curl("printed_call_is_a_miss_and_then_a_hit") else { return };
    let demo = on_terminal(COLUMNS);
    demo.says("upstream calls saved").await;
    let lines = screen(&demo.said(), COLUMNS);
    let from = lines.iter().position(|line| line.trim().starts_with("curl -si ")).unwrap();
    let command = lines[from..from + 3].join("\n");
    let run = async || {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &command]);
        text(&output(shell).await.stdout).trim().to_owned()
    };
    assert_eq!(run().await, "cache-status: holdfast; fwd=miss; stored", "{command}");
    // Until Holdfast knows the finalized block, it asks again after a second.
    eventually("a hit", async || run().await == "cache-status: holdfast; hit; detail=block").await;
}

#[tokio::test]
async fn demo_without_a_terminal_prints_only_addresses() {
    let dumb = || {
        let mut command = demo();
        command.env("TERM", "dumb");
        Program::on_terminal(command, COLUMNS)
    };
    for mut demo in [Program::start(demo()), dumb()] {
        demo.says("Press ctrl-c to stop.").await;
        let said = demo.said();
        // The demo is live: blocks arrive, reorgs happen, and its traffic is counted.
        let is_live = async || {
            let status = status(&said).await;
            status["calls"].as_u64() > Some(60) && status["reorgs"]["count"].as_u64() > Some(0)
        };
        eventually("traffic and a reorg", is_live).await;
        let rpc = client::at(&url(&said, "RPC endpoint"));
        assert!(rpc.ask("eth_getBlockByNumber", json!(["latest", false])).await.is_ok());

        demo.signal(Signal::INT);
        assert_eq!(demo.exit_code().await, Some(0));
        let said = demo.said();
        assert!(said.trim_end().ends_with("Press ctrl-c to stop."), "{said}");
        assert!(!said.contains('\x1b') && said.lines().count() <= 11, "{said}");
        assert!(said.contains("sends its own traffic"), "{said}");
    }
}

#[tokio::test]
async fn most_calls_of_the_demo_are_hits() {
    let demo = Program::start(demo());
    demo.says("Press ctrl-c to stop.").await;
    let said = demo.said();
    eventually("150 calls", async || status(&said).await["calls"].as_u64() > Some(150)).await;
    let status = status(&said).await;
    let [calls, hits] = ["calls", "hits"].map(|count| status[count].as_u64().unwrap());
    // It is about 90 % on an idle machine. On a busy one, more blocks arrive for each call, and more calls wait for them.
    assert!(hits * 2 >= calls, "{hits} hits of {calls} calls");
}

#[tokio::test]
async fn demo_listens_on_the_addresses_of_the_environment() {
    let mut command = holdfast(&["demo"]);
    command.env("HOLDFAST_LISTEN", "0.0.0.0:0").env("HOLDFAST_ADMIN", "0.0.0.0:0");
    let demo = Program::start(command);
    demo.says("Press ctrl-c to stop.").await;
    // The printed addresses must work unchanged.
    assert!(url(&demo.said(), "RPC endpoint").starts_with("http://127.0.0.1:"), "{}", demo.said());
    assert!(!demo.said().contains("http://0.0.0.0"), "{}", demo.said());
}

/// Replaces hashes by H, durations by T, other numbers by N, and the value of `cache-status` by S.
fn form(line: &str) -> String {
    let end = line.find("cache-status: ").map_or(line.len(), |at| at + "cache-status: ".len());
    let mut words: Vec<String> = Vec::new();
    for word in line[..end].split_whitespace().chain((end < line.len()).then_some("S")) {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        match words.last_mut() {
            Some(number) if ["µs", "ms", "s"].contains(&bare) && number.ends_with('N') => {
                number.pop();
                number.push_str(&word.replace(bare, "T"));
            }
            _ if word.starts_with("http://") => words.push("URL".to_owned()),
            _ if bare.starts_with("0x") => words.push(word.replace(bare, "H")),
            _ if bare.parse::<f64>().is_ok() => words.push(word.replace(bare, "N")),
            _ => words.push(word.to_owned()),
        }
    }
    words.join(" ")
}

/// Returns the text before the recording in the docs, the recording, and the text after it.
fn page() -> [String; 3] {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE)).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page shows the demo");
    let (recording, rest) = rest.split_once(END).expect("the recording has an end");
    [before, recording, rest].map(str::to_owned)
}

#[tokio::test]
async fn recording_has_the_form_of_the_demo() {
    let mut demo = on_terminal(COLUMNS);
    demo.says(", misses ").await;
    demo.signal(Signal::INT);
    assert_eq!(demo.exit_code().await, Some(0));
    let forms = |lines: &[String]| -> Vec<String> {
        let story = lines.iter().filter(|line| !line.starts_with("reorg of "));
        story.map(|line| form(line)).filter(|form| !form.is_empty()).collect()
    };
    let recording: Vec<_> = page()[1].lines().map(str::to_owned).collect();
    assert_eq!(recording[0], "$ holdfast demo");
    assert!(recording.iter().any(|line| line.starts_with("reorg of ")), "{recording:#?}");
    assert_eq!(forms(&recording[1..]), forms(&screen(&demo.said(), COLUMNS)));
}

/// Records the demo for the docs, until its second reorg. Needs the default ports:
/// `cargo test --release --test it record_the_demo -- --ignored`.
#[tokio::test]
#[ignore = "takes a minute and writes to the docs"]
async fn record_the_demo() {
    let mut command = holdfast(&["demo"]);
    command.env("TERM", "xterm");
    let mut demo = Program::on_terminal(command, COLUMNS);
    tokio::time::sleep(Duration::from_secs(65)).await;
    demo.signal(Signal::INT);
    assert_eq!(demo.exit_code().await, Some(0), "{}", demo.said());
    let lines = screen(&demo.said(), COLUMNS);
    let [before, _, rest] = page();
    let recording = format!("$ holdfast demo\n{}\n", lines.join("\n").trim_end());
    fs::write(
        Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE),
        format!("{before}{BEGIN}{recording}{END}{rest}"),
    )
    .unwrap();
}

#[tokio::test]
async fn log_lines_do_not_mix_with_the_score() {
    let mut command = demo();
    command.args(["--log-level", "info"]).env("TERM", "xterm");
    let demo = Program::on_terminal(command, COLUMNS);
    demo.says("upstream calls saved").await;
    let before = demo.said().len();
    eventually("a log line after the score", async || demo.said()[before..].contains("chain reorganized"))
        .await;
    let said = demo.said();
    let line = said.lines().rfind(|line| line.contains("chain reorganized")).unwrap();
    let shown = line.rsplit("\x1b[2K").next().unwrap();
    assert!(shown.contains("chain reorganized") && !shown.contains("calls"), "{line:?}");
}
