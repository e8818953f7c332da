//! A contract that emits the logs that its calldata describes, in EVM bytecode.

/// A word of the EVM.
pub type Word = [u8; 32];

/// A log for the contract to emit.
#[derive(Clone, Debug)]
pub struct Emission {
    /// At most four.
    pub topics: Vec<Word>,
    pub data: Word,
    /// Length of the log's data. Zeros follow `data`.
    pub len: u8,
}

/// Number of topic slots in the calldata of a log.
const SLOTS: usize = 4;

/// Calldata of one log in bytes: the number of topics, the length of the data, the topics, the data.
const STRIDE: usize = 32 * (SLOTS + 3);

/// Length of the code for each number of topics, padded, so that the contract computes where it starts.
const CASE: usize = 40;

mod op {
    pub const STOP: u8 = 0x00;
    pub const ADD: u8 = 0x01;
    pub const MUL: u8 = 0x02;
    pub const LT: u8 = 0x10;
    pub const CALLDATALOAD: u8 = 0x35;
    pub const CALLDATASIZE: u8 = 0x36;
    pub const CODECOPY: u8 = 0x39;
    pub const MSTORE: u8 = 0x52;
    pub const JUMP: u8 = 0x56;
    pub const JUMPI: u8 = 0x57;
    pub const JUMPDEST: u8 = 0x5b;
    pub const PUSH0: u8 = 0x5f;
    pub const PUSH1: u8 = 0x60;
    pub const PUSH2: u8 = 0x61;
    pub const DUP1: u8 = 0x80;
    pub const DUP2: u8 = 0x81;
    pub const LOG0: u8 = 0xa0;
    pub const RETURN: u8 = 0xf3;
}

/// Returns the code that creates the contract.
pub fn creation() -> Vec<u8> {
    const PREFIX: u8 = 10;
    let runtime = runtime();
    let mut code = push2(runtime.len()).to_vec();
    code.extend([op::DUP1, op::PUSH1, PREFIX, op::PUSH0, op::CODECOPY, op::PUSH0, op::RETURN]);
    assert_eq!(code.len(), usize::from(PREFIX));
    [code, runtime].concat()
}

/// Returns the calldata that makes the contract emit these logs.
pub fn calldata(logs: &[Emission]) -> Vec<u8> {
    let word = |number: usize| {
        let mut word = [0; 32];
        word[24..].copy_from_slice(&(number as u64).to_be_bytes());
        word
    };
    let mut calldata = Vec::new();
    for log in logs {
        let mut topics = log.topics.clone();
        topics.resize(SLOTS, [0; 32]);
        calldata.extend([word(log.topics.len()), word(log.len.into())].concat());
        calldata.extend(topics.concat());
        calldata.extend(log.data);
    }
    calldata
}

/// Returns the code of the contract: a loop over the logs. The stack holds the position in the calldata.
fn runtime() -> Vec<u8> {
    let mut code = vec![op::PUSH0];
    let next = code.len();
    code.extend([op::JUMPDEST, op::CALLDATASIZE, op::DUP2, op::LT]);
    let emit = code.len() + 5;
    code.extend(push2(emit));
    code.extend([op::JUMPI, op::STOP]);
    // Copies the data into memory.
    code.extend([op::JUMPDEST, op::DUP1, op::PUSH1, (STRIDE - 32) as u8, op::ADD, op::CALLDATALOAD]);
    code.extend([op::PUSH0, op::MSTORE]);
    // Jumps to the code for this number of topics.
    code.extend([op::DUP1, op::CALLDATALOAD, op::PUSH1, CASE as u8, op::MUL]);
    let cases = code.len() + 5;
    code.extend(push2(cases));
    code.extend([op::ADD, op::JUMP]);
    let after = cases + CASE * (SLOTS + 1);
    for count in 0..=SLOTS {
        let mut case = vec![op::JUMPDEST];
        // The instruction takes the first topic from the top of the stack.
        for (pushed, topic) in (0..count).rev().enumerate() {
            case.extend(load(pushed, 32 * (topic + 2)));
        }
        case.extend(load(count, 32));
        case.extend([op::PUSH0, op::LOG0 + count as u8]);
        case.extend(push2(after));
        case.push(op::JUMP);
        case.resize(CASE, op::STOP);
        code.extend(case);
    }
    code.extend([op::JUMPDEST, op::PUSH1, STRIDE as u8, op::ADD]);
    code.extend(push2(next));
    code.push(op::JUMP);
    code
}

/// Returns code that loads the word at `offset` after the position, which has `above` words above it on the stack.
fn load(above: usize, offset: usize) -> [u8; 5] {
    [op::DUP1 + above as u8, op::PUSH1, offset as u8, op::ADD, op::CALLDATALOAD]
}

fn push2(value: usize) -> [u8; 3] {
    let [high, low] = u16::try_from(value).unwrap().to_be_bytes();
    [op::PUSH2, high, low]
}
