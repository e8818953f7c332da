//! `holdfast import`

use std::{
    fs::File,
    io::{BufReader, Seek},
    iter,
    path::PathBuf,
    thread,
};

use bytesize::ByteSize;
use clap::Args;
use futures_util::{StreamExt, stream};
use tokio::task;

use super::{Failure, progress::Progress, proof::prove, run, say, serve::chain_id, signal::StopSignals};
use crate::{
    cache::{
        Disk, DiskConfig,
        tier::{ArchiveError, ArchiveReader, Carried, ChainKey, Part, Record, Sealed, Tier, TierError},
    },
    config::LogConfig,
    eth::{Block, BlockHash, BlockNumber},
    upstream::is_development,
    verify::{self, AskedBlock, Verified},
};

/// Put the blocks of a file into a directory that `holdfast serve --data` answers from.
///
/// First the whole file is read: one that is damaged, cut off or of another format is refused, and so is one that says
/// something else of a number than the directory. Then every block, and its receipts, must prove to be what it says by
/// Ethereum's rules, and must follow on the one before. What was put in before something failed is proved, and stays.
/// What is there already is passed over, so an import can be made again.
///
/// Which block stands at a number cannot be proved: of that the file is believed. Import what you trust.
///
/// Exits with 0 if all blocks are in the directory, with 1 if some are not, with 64 if the command line is wrong, with 130
/// if it was stopped (ctrl-c).
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Import {
    /// What `holdfast export` has written
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The directory; made if it is not there. No instance may be using it
    #[arg(long, value_name = "DIR", env = "HOLDFAST_CACHE__DISK__PATH")]
    data: PathBuf,

    /// Refuse blocks of any other chain than this: 1, or as nodes write it, 0x1
    #[arg(long, value_name = "ID", value_parser = chain_id)]
    chain_id: Option<u64>,
}

const EXAMPLES: &str = "\
Examples:
  holdfast import blocks.hf --data /var/lib/holdfast
  holdfast import blocks.hf --data /var/lib/holdfast --chain-id 1    only if it is of Mainnet
  holdfast serve --data /var/lib/holdfast --upstream http://127.0.0.1:8545";

/// What a file says that it holds; nothing of it is proved yet.
struct Survey {
    chain: ChainKey,
    blocks: Vec<(BlockNumber, BlockHash)>,
    length: u64,
}

/// A block of the file that is proved.
struct Proved {
    carried: Carried,
    block: Verified<Block>,
}

// === impl Import ===

impl Import {
    pub(super) fn run(self) -> Result<(), Failure> {
        run(&LogConfig::default(), async move {
            let mut stop = StopSignals::listen()
                .map_err(|error| Failure::Other(format!("cannot take signals: {error}")))?;
            // In a task of its own: it reads long stretches in one go.
            let importing = tokio::spawn(async move { self.import().await });
            tokio::select! {
                done = importing => done.unwrap_or_else(|died| Err(Failure::Other(died.to_string()))),
                () = stop.next() => Err(Failure::Interrupted),
            }
        })
    }

    async fn import(&self) -> Result<(), Failure> {
        let mut file =
            File::open(&self.file).map_err(|error| self.refused(ArchiveError::Unreadable(error)))?;
        let Survey { chain, blocks, length } = self.survey(&file)?;
        if blocks.is_empty() {
            return Err(self.refused("there is no block in it"));
        }
        let disk = self.open(length)?;
        if disk.finalized(chain).await.map_err(|error| self.failed(&error))?.is_none() {
            // What is there with nothing to vouch for it is not vouched for by what comes now.
            disk.forget_canonicity(chain).await.map_err(|error| self.failed(&error))?;
        }
        self.compare(&disk, chain, &blocks).await?;
        file.rewind().map_err(|error| self.refused(ArchiveError::Unreadable(error)))?;
        let mut put = 0;
        let progress = Progress::new(blocks.len() as u64);
        let done = self.put(&disk, chain, &file, &blocks, |so_far| {
            put = so_far;
            progress.step();
        });
        let done = done.await;
        progress.end();
        if let (Err(Failure::Other(why)), 1..) = (&done, put) {
            return Err(Failure::Other(format!(
                "{why}; the {put} blocks before it are proved, and stay in {}",
                self.data.display()
            )));
        }
        done?;
        let followed = disk.last_chain().await.map_err(|error| self.failed(&error))?;
        if followed.is_none() {
            disk.follow(Some(chain)).await.map_err(|error| self.failed(&error))?;
        }
        self.report(&disk, chain, &blocks, followed.filter(|followed| *followed != chain))
    }

    /// Reads all of the file before anything is done with it.
    fn survey(&self, file: &File) -> Result<Survey, Failure> {
        let mut reader = ArchiveReader::begin(BufReader::new(file)).map_err(|error| self.refused(error))?;
        let chain = reader.chain();
        if let Some(wanted) = self.chain_id.filter(|wanted| *wanted != chain.id) {
            return Err(self.refused(format_args!("it is of chain {}, but --chain-id is {wanted}", chain.id)));
        }
        if is_development(chain.id) {
            let id = chain.id;
            return Err(
                self.refused(format_args!("chain {id} is started anew at will: nothing of it is final"))
            );
        }
        let mut blocks: Vec<(BlockNumber, BlockHash)> = Vec::new();
        while let Some(Carried { number, hash, .. }) =
            reader.next_block().map_err(|error| self.refused(error))?
        {
            if blocks.last().is_some_and(|(before, _)| *before >= number) {
                return Err(self.wrong(number, "it does not come after those before it"));
            }
            blocks.push((number, hash));
        }
        let length = file.metadata().map_err(|error| self.refused(ArchiveError::Unreadable(error)))?.len();
        Ok(Survey { chain, blocks, length })
    }

    /// Takes the directory, with room for all of it: how much is kept there is for `serve` to say, not for an import.
    fn open(&self, length: u64) -> Result<Disk, Failure> {
        let open = |config: &DiskConfig| {
            Disk::open(config).map_err(|error| Failure::Other(format!("--data: {error}")))
        };
        let mut config = DiskConfig::new(&self.data);
        let usual = config.size;
        config.size = ByteSize(u64::MAX);
        let there = open(&config)?.usage().bytes.unwrap_or(0);
        // Beside the values, the hashes of transactions are kept, and an index.
        config.size = usual.max(ByteSize(there.saturating_add(length.saturating_mul(2))));
        open(&config)
    }

    /// Nothing that the directory says of numbers may be another in the file.
    async fn compare(
        &self,
        disk: &Disk,
        chain: ChainKey,
        blocks: &[(BlockNumber, BlockHash)],
    ) -> Result<(), Failure> {
        let finalized = disk.finalized(chain).await.map_err(|error| self.failed(&error))?;
        for (number, hash) in blocks.iter().copied() {
            let known = disk.hash_at(chain, number).await.map_err(|error| self.failed(&error))?;
            let known = known.or(finalized.filter(|(at, _)| *at == number).map(|(_, hash)| hash));
            if let Some(known) = known.filter(|known| *known != hash) {
                let directory = self.data.display();
                return Err(
                    self.wrong(number, format_args!("it is {hash}, but in {directory} it is {known}"))
                );
            }
        }
        match blocks.last() {
            Some(last) => self.precedes(disk, chain, *last).await,
            None => Ok(()),
        }
    }

    /// Proves one block after the other, and puts them in.
    async fn put(
        &self,
        disk: &Disk,
        chain: ChainKey,
        file: &File,
        blocks: &[(BlockNumber, BlockHash)],
        mut step: impl FnMut(u64),
    ) -> Result<(), Failure> {
        let mut reader = ArchiveReader::begin(BufReader::new(file)).map_err(|error| self.refused(error))?;
        let all = stream::iter(iter::from_fn(move || reader.next_block().transpose()));
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let proofs =
            all.map(|next| async { self.prove(chain, next.map_err(|error| self.refused(error))?).await });
        let mut proved = std::pin::pin!(proofs.buffered(cores));
        let mut expected = blocks.iter();
        let mut count = 0;
        let mut before: Option<(BlockNumber, BlockHash)> = None;
        while let Some(next) = proved.next().await {
            let Proved { carried, block } = next?;
            let (number, hash) = (carried.number, carried.hash);
            if expected.next() != Some(&(number, hash)) {
                return Err(self.refused("it changed while it was read"));
            }
            self.link(disk, chain, &block, before).await?;
            // What is there without it could not be held to anything.
            disk.note_finalized(chain, number, hash).await.map_err(|error| self.failed(&error))?;
            let transactions = block.transaction_hashes().collect();
            let parts = [
                Some((Part::Block, transactions, carried.block)),
                carried.receipts.map(|receipts| (Part::Receipts, Vec::new(), receipts)),
            ];
            for (part, transactions, value) in parts.into_iter().flatten() {
                let record = Record { number, hash, part, transactions, value };
                disk.put(chain, record).await.map_err(|error| self.failed(&error))?;
            }
            before = Some((number, hash));
            count += 1;
            step(count);
        }
        Ok(())
    }

    /// Proves a block and its receipts by Ethereum's rules.
    async fn prove(&self, chain: ChainKey, carried: Carried) -> Result<Proved, Failure> {
        let number = carried.number;
        let prove = move || {
            let text = carried.block.open().map_err(|damaged| damaged.to_string())?;
            let receipts = carried.receipts.as_ref().map(Sealed::open).transpose();
            let receipts = receipts.map_err(|damaged| format!("its receipts: {damaged}"))?;
            let block = prove(chain, AskedBlock::ByHash(carried.hash), &text, receipts.as_deref())?;
            if block.header().number != number {
                return Err(format!("its own number is {}", block.header().number.0));
            }
            Ok(Proved { carried, block })
        };
        let proved = task::spawn_blocking(prove).await.unwrap_or_else(|died| Err(died.to_string()));
        proved.map_err(|why| self.wrong(number, why))
    }

    /// A block must follow on what stands before it, in the file or in the directory.
    async fn link(
        &self,
        disk: &Disk,
        chain: ChainKey,
        block: &Verified<Block>,
        before: Option<(BlockNumber, BlockHash)>,
    ) -> Result<(), Failure> {
        let header = block.header();
        let number = header.number;
        let failed = |error| self.failed(&error);
        if let Some(below) = number.0.checked_sub(1).map(BlockNumber) {
            // The highest final block of a directory need not be in it.
            let noted = disk.finalized(chain).await.map_err(failed)?;
            let beside = [before, noted].into_iter().flatten().find(|(at, _)| *at == below);
            let known = match beside {
                Some((_, hash)) => Some(hash),
                None => disk.hash_at(chain, below).await.map_err(failed)?,
            };
            if let Some(known) = known.filter(|known| *known != header.parent) {
                let parent = header.parent;
                return Err(
                    self.wrong(number, format_args!("it follows on {parent}, but before it stands {known}"))
                );
            }
        }
        Ok(())
    }

    /// What the directory has after this block must follow on it.
    async fn precedes(
        &self,
        disk: &Disk,
        chain: ChainKey,
        (number, hash): (BlockNumber, BlockHash),
    ) -> Result<(), Failure> {
        let failed = |error| self.failed(&error);
        let above = BlockNumber(number.0.saturating_add(1));
        let Some(next) = disk.hash_at(chain, above).await.map_err(failed)? else { return Ok(()) };
        let Some(sealed) = disk.get(chain, Part::Block, next).await.map_err(failed)? else { return Ok(()) };
        let next = sealed.open().ok().and_then(|text| verify::block(&text, AskedBlock::ByHash(next)).ok());
        match next.filter(|next| next.header().parent != hash) {
            Some(_) => {
                let directory = self.data.display();
                Err(self.wrong(number, format_args!("the next block in {directory} does not follow on it")))
            }
            None => Ok(()),
        }
    }

    fn report(
        &self,
        disk: &Disk,
        chain: ChainKey,
        blocks: &[(BlockNumber, BlockHash)],
        followed: Option<ChainKey>,
    ) -> Result<(), Failure> {
        let (first, last) = (blocks.first(), blocks.last());
        let number = |block: Option<&(BlockNumber, BlockHash)>| block.map_or(0, |(number, _)| number.0);
        let directory = self.data.display();
        say(format_args!(
            "{} blocks of chain {} are in {directory}, {}..{}",
            blocks.len(),
            chain.id,
            number(first),
            number(last)
        ))?;
        if let Some(followed) = followed {
            say(format_args!(
                "as long as no node answers, {directory} answers of chain {}, which was served from it before",
                followed.id
            ))?;
        }
        let usual = DiskConfig::new(&self.data).size;
        let bytes = ByteSize(disk.usage().bytes.unwrap_or(0));
        if bytes > usual {
            say(format_args!(
                "{directory} takes {bytes} now: set cache.disk.size to more, or the oldest is deleted down to {usual}"
            ))?;
        }
        Ok(())
    }

    fn wrong(&self, number: BlockNumber, why: impl std::fmt::Display) -> Failure {
        self.refused(format_args!("block {}: {why}", number.0))
    }

    fn refused(&self, why: impl std::fmt::Display) -> Failure {
        // Some of it may be the file's own text, which must not steer a terminal.
        let why = why.to_string().replace(char::is_control, "\u{fffd}");
        Failure::Other(format!("{}: {why}", self.file.display()))
    }

    fn failed(&self, error: &TierError) -> Failure {
        Failure::Other(format!("{}: {error}", self.data.display()))
    }
}
