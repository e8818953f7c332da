//! anvil as a real node.

use std::{path::PathBuf, process::Command};

use super::program::Program;

/// Anvil's first account, which is unlocked.
pub const SENDER: &str = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266";

/// A running anvil.
pub struct Anvil {
    _program: Program,
    url: String,
}

// === impl Anvil ===

impl Anvil {
    pub async fn start(binary: PathBuf, arguments: &[&str]) -> Self {
        let mut command = Command::new(binary);
        command.args(["--host", "127.0.0.1", "--port", "0"]).args(arguments);
        let program = Program::start(command);
        let line = program.line("Listening on ").await;
        let (_, address) = line.split_once("Listening on ").unwrap();
        let url = format!("http://{}", address.trim());
        Self { _program: program, url }
    }

    pub fn url(&self) -> &str {
        &self.url
    }
}
