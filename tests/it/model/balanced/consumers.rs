//! The calls of real consumers, in front of replicas that lag each other by one to three blocks. A consumer that has
//! seen a head asks at once for its content, which most replicas do not have yet.

use proptest::prelude::*;
use serde_json::Value;

use super::{Happens, Run, Seen, Setting, assert_repeats, check_programs, run};
use crate::model::{
    step::{Place, Question, Step},
    world::Hash,
};

/// A client program, and the calls of one turn of its loop.
#[derive(Clone, Copy, Debug)]
pub(super) enum Consumer {
    /// op-node: the head, its full block, and its receipts.
    OpNode(Receipts),
    /// Ponder: the full head and its receipts, which it takes one after the other.
    Ponder,
    /// graph-node: the head, its full block, and each receipt alone.
    GraphNode,
    /// Blockscout: the newest blocks in one batch, and then all their receipts in another.
    Blockscout,
    /// viem: the number of the head, that block, and the receipt of its last transaction.
    Viem,
    /// kona-host: the header by number, and the raw receipts.
    Kona,
}

/// The setting `rpckind` of op-node.
#[derive(Clone, Copy, Debug)]
pub(super) enum Receipts {
    Standard,
    Basic,
    DebugGeth,
}

fn consumer() -> impl Strategy<Value = Consumer> {
    prop_oneof![
        Just(Consumer::OpNode(Receipts::Standard)),
        Just(Consumer::OpNode(Receipts::Basic)),
        Just(Consumer::OpNode(Receipts::DebugGeth)),
        Just(Consumer::Ponder),
        Just(Consumer::GraphNode),
        Just(Consumer::Blockscout),
        Just(Consumer::Viem),
        Just(Consumer::Kona),
    ]
}

fn happens() -> impl Strategy<Value = Happens> {
    let wait = prop_oneof![Just(200u64), Just(1_001), Just(2_000), Just(12_000)];
    prop_oneof![
        12 => (0usize..4).prop_map(|transactions| Happens::Step(Step::Mine(1, transactions))),
        8 => wait.prop_map(|millis| Happens::Step(Step::Wait(millis))),
        1 => (1u64..3, 1usize..4).prop_map(|(depth, length)| Happens::Step(Step::Reorg { depth, length })),
        4 => (0usize..3, 0usize..4).prop_map(|(replica, changes)| Happens::Lag { replica, changes }),
        2 => any::<u64>().prop_map(Happens::Shift),
        1 => Just(Happens::Restart),
        20 => consumer().prop_map(Happens::Consume),
    ]
}

impl Run<'_> {
    /// Makes the calls of one turn. A turn ends early if a call fails, as the loops of these programs do.
    pub(super) async fn consume(&mut self, consumer: Consumer) -> Result<(), String> {
        let number = match consumer {
            Consumer::Blockscout | Consumer::Viem => {
                let number = self.ask_for(&[Question::BlockNumber]).await?;
                number[0].as_str().and_then(|number| u64::from_str_radix(number.strip_prefix("0x")?, 16).ok())
            }
            _ => None,
        };
        match (consumer, number) {
            (Consumer::OpNode(receipts), _) => {
                let Some(hash) = self.see_head(false).await? else { return Ok(()) };
                self.ask_for(&[self.block_by_hash(hash)]).await?;
                match receipts {
                    Receipts::Standard => self.ask_for(&[Question::BlockReceipts(Place::Hash(hash))]).await?,
                    Receipts::DebugGeth => self.ask_for(&[Question::RawReceipts(Place::Hash(hash))]).await?,
                    Receipts::Basic => self.ask_for(&self.receipts_in(hash)).await?,
                };
            }
            (Consumer::Ponder, _) => {
                let Some(hash) = self.see_head(true).await? else { return Ok(()) };
                self.ask_for(&[Question::BlockReceipts(Place::Hash(hash))]).await?;
            }
            (Consumer::GraphNode, _) => {
                let Some(hash) = self.see_head(false).await? else { return Ok(()) };
                self.ask_for(&[self.block_by_hash(hash)]).await?;
                for receipt in self.receipts_in(hash) {
                    self.ask_for(&[receipt]).await?;
                }
            }
            (Consumer::Blockscout, Some(number)) => {
                let blocks: Vec<_> = (number.saturating_sub(2)..=number)
                    .map(|number| Question::BlockByNumber(Place::At(number), true))
                    .collect();
                let blocks = self.ask_for(&blocks).await?;
                let receipts: Vec<_> =
                    blocks.iter().filter_map(hash_of).flat_map(|hash| self.receipts_in(hash)).collect();
                self.ask_for(&receipts).await?;
            }
            (Consumer::Viem, Some(number)) => {
                let block = self.ask_for(&[Question::BlockByNumber(Place::At(number), false)]).await?;
                let receipt = hash_of(&block[0]).and_then(|hash| self.receipts_in(hash).pop());
                self.ask_for(receipt.as_slice()).await?;
            }
            (Consumer::Kona, _) => {
                let Some(hash) = self.see_head(false).await? else { return Ok(()) };
                let number = self.world.number(hash).unwrap();
                self.ask_for(&[Question::Header(Place::At(number))]).await?;
                self.ask_for(&[Question::RawReceipts(Place::Hash(hash))]).await?;
            }
            (Consumer::Blockscout | Consumer::Viem, None) => {}
        }
        Ok(())
    }

    /// Asks for `latest`, and returns its hash; `None` if the call fails.
    async fn see_head(&mut self, full: bool) -> Result<Option<Hash>, String> {
        let head = self.ask_for(&[Question::BlockByNumber(Place::Latest, full)]).await?;
        Ok(hash_of(&head[0]))
    }

    fn block_by_hash(&self, hash: Hash) -> Question {
        let choice = self.world.blocks.iter().position(|block| *block == hash).unwrap();
        Question::BlockByHash(u16::try_from(choice).unwrap(), true)
    }

    /// Returns the calls for each receipt of a block.
    fn receipts_in(&self, hash: Hash) -> Vec<Question> {
        let transactions = self.world.chain.transactions_of(hash);
        transactions.into_iter().filter_map(|hash| self.world.receipt_of(hash)).collect()
    }
}

/// Returns the hash of a block.
fn hash_of(block: &Value) -> Option<Hash> {
    serde_json::from_value(block["hash"].clone()).ok()
}

const SETTING: Setting = Setting { fast_finality: false, followed: false };

fn any_program() -> impl Strategy<Value = Vec<Happens>> {
    proptest::collection::vec(happens(), 1..50)
}

#[test]
fn consumers_get_no_null_for_known_data() {
    let (setting, seen) = (SETTING, Seen::default());
    let ran = check_programs(100, &any_program(), &setting, |steps| run(setting, &seen, steps));
    println!("consumers: {seen:?}");
    seen.assert_differed(ran, 3);
}

#[test]
fn programs_repeat() {
    assert_repeats(&SETTING, &any_program(), |steps| run(SETTING, &Seen::default(), steps));
}
