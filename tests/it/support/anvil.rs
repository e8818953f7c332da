//! A real node.

use std::{path::PathBuf, process::Command};

use super::program::Program;

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
        program.says("Listening on ").await;
        // The line may arrive in two pieces: the port is whole once the line has ended.
        super::eventually("anvil's port", || async { Self::address(&program.said()).is_some() }).await;
        let url = format!("http://{}", Self::address(&program.said()).unwrap());
        Self { _program: program, url }
    }

    fn address(said: &str) -> Option<String> {
        let (_, rest) = said.split_once("Listening on ")?;
        rest.split_once('\n').map(|(address, _)| address.trim().to_owned())
    }

    pub fn url(&self) -> &str {
        &self.url
    }
}
