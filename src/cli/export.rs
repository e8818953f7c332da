//! `holdfast export`

mod draft;
mod source;

use std::{io, io::IsTerminal, path::PathBuf};

use bytesize::ByteSize;
use clap::{Args, value_parser};
use futures_util::{StreamExt, stream};
use tokio::task;

use self::{draft::Draft, source::Source};
use super::{Failure, blocks::Blocks, progress::Progress, proof::prove, run, say, signal::StopSignals};
use crate::{
    cache::tier::{ArchiveWriter, Carried, ChainKey, Sealed},
    config::LogConfig,
    eth::{BlockHash, BlockNumber},
    upstream::is_development,
    verify::AskedBlock,
};

/// Write final blocks to one file, to be imported elsewhere.
///
/// They are read from a running instance, or from any node: it is asked for its chain, for what is final, and for each
/// block. Every block, and its receipts, must prove to be what it says by Ethereum's rules, and must follow on the one
/// before; else nothing is written. Only what is final is exported. The file takes its name when it is whole.
///
/// Exits with 0 if all blocks are in the file, with 1 if there is none, with 64 if the command line is wrong, with 130 if
/// it was stopped (ctrl-c).
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Export {
    /// From block A to block B, both included; B can be "finalized"
    #[arg(long, value_name = "A..B", value_parser = Blocks::until_finalized)]
    blocks: Blocks,

    /// Their receipts too
    #[arg(long)]
    receipts: bool,

    /// The file to write, or - for standard output
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// Replace the file if it is there
    #[arg(long)]
    force: bool,

    /// An instance, or a node. It is never shown whole: it may hold a key
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8555")]
    url: String,

    /// Blocks at a time, up to 16
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = value_parser!(u8).range(1..=16))]
    concurrency: u8,
}

const EXAMPLES: &str = "\
Examples:
  holdfast export --blocks 19000000..19000999 --out blocks.hf              a thousand blocks
  holdfast export --blocks 19000000..finalized --receipts --out blocks.hf  all since then that is final
  holdfast export --blocks 0..99 --out blocks.hf --url http://10.0.0.5:8545
  holdfast export --blocks 0..99 --out - | ssh ci 'cat > blocks.hf'
  holdfast import blocks.hf --data /var/lib/holdfast                       and there";

/// A block that is proved, ready to be written.
struct Proved {
    carried: Carried,
    parent: BlockHash,
}

/// What was written.
struct Written {
    chain: ChainKey,
    last: u64,
    bytes: u64,
}

// === impl Export ===

impl Export {
    pub(super) fn run(self) -> Result<(), Failure> {
        // What fails is said in the end; the log would say it twice.
        let quiet = LogConfig { level: "off".to_owned(), ..LogConfig::default() };
        run(&quiet, async move {
            let mut stop = StopSignals::listen()
                .map_err(|error| Failure::Other(format!("cannot take signals: {error}")))?;
            let source = Source::try_new(&self.url)?;
            let is_stream = self.out.as_os_str() == "-";
            let draft = if is_stream { None } else { Some(Draft::begin(&self.out, self.force)?) };
            if is_stream && io::stdout().is_terminal() {
                return Err(Failure::Other("--out -: this is no text for a terminal".to_owned()));
            }
            let written = tokio::select! {
                written = self.write(&source, draft.as_ref()) => written?,
                () = stop.next() => return Err(Failure::Interrupted),
            };
            if let Some(draft) = draft {
                draft.finish()?;
            }
            self.report(is_stream, &written)
        })
    }

    async fn write(&self, source: &Source, draft: Option<&Draft>) -> Result<Written, Failure> {
        let chain = source.chain().await?;
        if is_development(chain.id) {
            let id = chain.id;
            return Err(Failure::Other(format!(
                "chain {id} is started anew at will: nothing of it is final"
            )));
        }
        let (finalized, finalized_hash) = source.finalized().await?;
        let (from, last) = (self.blocks.from, self.blocks.to.unwrap_or(finalized.0));
        if last.max(from) > finalized.0 {
            return Err(Failure::Other(format!(
                "block {} is not final yet: blocks can be exported up to {}",
                last.max(from),
                finalized.0
            )));
        }
        let cannot_write = |error| Failure::Other(format!("cannot write {}: {error}", self.out.display()));
        let into: Box<dyn io::Write> = match draft {
            Some(draft) => Box::new(io::BufWriter::new(draft.file())),
            None => Box::new(io::BufWriter::new(io::stdout())),
        };
        let mut writer = ArchiveWriter::begin(into, chain).map_err(cannot_write)?;
        let progress = Progress::new((last - from).saturating_add(1));
        let fetches = stream::iter(from..=last).map(|number| self.fetch(source, chain, BlockNumber(number)));
        let mut fetched = std::pin::pin!(fetches.buffered(self.concurrency.into()));
        let (mut before, mut bytes) = (None, 0);
        while let Some(proved) = fetched.next().await {
            let Proved { carried, parent } = proved.inspect_err(|_| progress.end())?;
            let at = carried.number;
            let contradicts = before.is_some_and(|before| before != parent)
                || (at == finalized && carried.hash != finalized_hash);
            if contradicts {
                progress.end();
                return Err(source.failed(at, "it is not of one chain with the others: try again"));
            }
            writer.put(&carried).map_err(cannot_write)?;
            bytes += carried.block.bytes().len() as u64;
            bytes += carried.receipts.as_ref().map_or(0, |receipts| receipts.bytes().len() as u64);
            before = Some(carried.hash);
            progress.step();
        }
        progress.end();
        writer.finish().map_err(cannot_write)?;
        Ok(Written { chain, last, bytes })
    }

    /// A block with what belongs to it, proved and packed.
    async fn fetch(&self, source: &Source, chain: ChainKey, number: BlockNumber) -> Result<Proved, Failure> {
        let block = source.block(number).await?;
        let receipts = if self.receipts { Some(source.receipts(number).await?) } else { None };
        let prove = move || {
            let block = prove(chain, AskedBlock::ByNumber(number), &block, receipts.as_deref())?;
            let seal = |text: &[u8]| Sealed::new(text).ok_or("it is too long".to_owned());
            let carried = Carried {
                number,
                hash: block.hash(),
                receipts: receipts.as_deref().map(seal).transpose()?,
                block: seal(&block.full())?,
            };
            Ok(Proved { carried, parent: block.header().parent })
        };
        let proved = task::spawn_blocking(prove).await.unwrap_or_else(|died| Err(died.to_string()));
        proved.map_err(|why| source.failed(number, why))
    }

    fn report(&self, is_stream: bool, written: &Written) -> Result<(), Failure> {
        let Written { chain, last, bytes } = written;
        let from = self.blocks.from;
        let what = if self.receipts { "blocks with their receipts" } else { "blocks" };
        let line = format!(
            "{} {what} of chain {} exported, {from}..{last}, {}",
            last - from + 1,
            chain.id,
            ByteSize(*bytes)
        );
        if is_stream {
            // Standard output is the file. Nobody need read this.
            let _ = io::Write::write_all(&mut io::stderr(), format!("{line}\n").as_bytes());
            return Ok(());
        }
        say(format_args!("{line} in {}", self.out.display()))
    }
}
