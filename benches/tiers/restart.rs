//! Time from the start of a process to its first answer.

use std::{
    fs::File,
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use holdfast::devchain::DevNode;
use serde_json::Value;
use tokio::time::Instant;

use crate::{filled::Filled, folder, servers::Connection, spread};

/// Kind of the first request.
#[derive(Clone, Copy, Debug)]
enum By {
    Hash,
    Number,
    Transaction,
}

/// Arguments of the process.
struct Start<'a> {
    binary: &'a Path,
    data: Option<&'a Path>,
    node: &'a str,
}

/// A running process. Killed when dropped, so that each start follows a kill.
struct Running(Child);

/// A URL at which no server listens.
const NOWHERE: &str = "http://127.0.0.1:1";

pub fn measure(binary: &Path, filled: &Filled, node: &DevNode, rounds: u32) -> String {
    let url = node.url();
    let (data, nothing) = (Some(filled.data.as_path()), None);
    let rows = [
        ("a full disk", Start { binary, data, node: &url }),
        ("a full disk, and no node answers", Start { binary, data, node: NOWHERE }),
        ("no disk: from the node", Start { binary, data: nothing, node: &url }),
    ];
    let columns = [By::Hash, By::Number, By::Transaction];
    let mut took = vec![[(); 3].map(|()| Vec::new()); rows.len()];
    for round in 0..rounds {
        for (row, (_, start)) in rows.iter().enumerate() {
            for (column, by) in columns.into_iter().enumerate() {
                // Without a node, nothing leads to a number or a transaction.
                if start.node == NOWHERE && !matches!(by, By::Hash) {
                    continue;
                }
                // Asks for another block in each round. The page cache may contain it, as after any restart of only the
                // process.
                let number = 1 + u64::from(round) * 97 % filled.blocks;
                let asked = filled.chain.calls_total();
                let time = start.first_answer(filled, by, number);
                let for_content = filled.chain.calls_total() - asked;
                eprintln!("restart, {by:?}, disk {}: {time:?}, {for_content} calls", start.data.is_some());
                took[row][column].push(time.as_secs_f64() * 1000.0);
            }
        }
    }
    let mut table = "| ms from the start of the process to the first answer | by block hash | by number | by transaction |\n|---|---|---|---|\n".to_owned();
    for ((name, _), took) in rows.iter().zip(took) {
        table += &format!("| {name} | {} |\n", took.map(spread).join(" | "));
    }
    table
}

// === impl Start ===

impl Start<'_> {
    fn first_answer(&self, filled: &Filled, by: By, number: u64) -> Duration {
        let hash = filled.chain.hash_at(number).unwrap();
        let (method, params) = match by {
            By::Hash => ("eth_getBlockByHash", format!(r#""{hash:#x}",true"#)),
            By::Number => ("eth_getBlockByNumber", format!(r#""{number:#x}",true"#)),
            By::Transaction => {
                ("eth_getTransactionByHash", format!(r#""{:#x}""#, filled.chain.transactions_of(hash)[0]))
            }
        };
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":[{params}]}}"#);
        let params: Value = serde_json::from_str(&format!("[{params}]")).unwrap();
        let truth = filled.chain.answer(method, params).unwrap();
        let (listen, begun) = (free_address(), Instant::now());
        let _running = self.run(listen);
        while TcpStream::connect(listen).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "the process does not start");
            thread::sleep(Duration::from_millis(1));
        }
        let answer = Connection::open(listen).post(body.as_bytes());
        let time = begun.elapsed();
        let right = answer.windows(truth.len()).any(|part| part == truth);
        assert!(right, "{method} is wrong: {}", String::from_utf8_lossy(&answer[..answer.len().min(300)]));
        time
    }

    fn run(&self, listen: SocketAddr) -> Running {
        let log = File::create(folder().join("restart.log")).unwrap();
        let mut command = Command::new(self.binary);
        command.args(["serve", "--listen", &listen.to_string(), "--admin", "127.0.0.1:0"]);
        command.args(["--upstream", self.node]);
        if let Some(data) = self.data {
            command.arg("--data").arg(data);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Running(command.spawn().unwrap())
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

// === impl Running ===

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
