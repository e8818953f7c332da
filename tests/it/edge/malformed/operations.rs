//! The six operations with parameters that no node accepts. They get the error `-32602`, with a message that names
//! the parameter and its fault.
//!
//! Each parameter of each operation is tested with every fault.

use super::{Case, INVALID_PARAMS};

const OPERATIONS: [(&str, &[Param]); 6] = [
    ("eth_getBlockByHash", &[Param::BlockHash, Param::Full]),
    ("eth_getBlockByNumber", &[Param::Number, Param::Full]),
    ("eth_getTransactionByHash", &[Param::TxHash]),
    ("eth_getTransactionByBlockHashAndIndex", &[Param::BlockHash, Param::Index]),
    ("eth_getTransactionByBlockNumberAndIndex", &[Param::Tag, Param::Index]),
    ("eth_getTransactionReceipt", &[Param::TxHash]),
];

/// Digits that replace `#` in the tables, which keeps the lines of the tables short.
const DIGITS: &str = "abcdef0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789";

/// A parameter of an operation.
#[derive(Clone, Copy)]
enum Param {
    BlockHash,
    TxHash,
    Number,
    /// The same as `Number`, but messages name it `block_tag`.
    Tag,
    Full,
    Index,
}

/// A parameter as written, and the expected message.
type Bad = (&'static str, &'static str);

pub(super) fn cases() -> Vec<Case> {
    OPERATIONS.iter().flat_map(|(method, params)| cases_of(method, params)).collect()
}

fn cases_of(method: &str, params: &[Param]) -> Vec<Case> {
    let good: Vec<_> = params.iter().map(|param| param.good()).collect();
    let case = |params: &[&str], says: String| {
        let params = params.join(",").replace('#', DIGITS);
        let body = format!(r#"{{"jsonrpc":"2.0","id":"\u006fp","method":"{method}","params":[{params}]}}"#);
        Case::error(format!("{method} [{params}]"), body, INVALID_PARAMS, r#""\u006fp""#, says)
    };

    let mut cases = Vec::new();
    for (at, param) in params.iter().enumerate() {
        let position = format!("parameter {} ({})", at + 1, param.name());
        cases.push(case(&good[..at], format!("{position} is missing: {}", param.expected())));
        for (bad, says) in param.bad() {
            let mut written = good.clone();
            written[at] = bad;
            cases.push(case(&written, format!("{position}: {says}")));
        }
    }
    for extra in [r#"null"#, r#"true"#, r#""0x#""#, r#"{}"#, r#"[]"#, r#""""#] {
        let says = format!("expected {} parameters, got {}", good.len(), good.len() + 1);
        cases.push(case(&[good.as_slice(), &[extra]].concat(), says));
    }
    // The message names the first fault.
    cases.push(case(&["null"; 9], format!("parameter 1 ({})", params[0].name())));
    let swapped: Vec<_> = good.iter().rev().copied().collect();
    if swapped.len() > 1 {
        cases.push(case(&swapped, format!("parameter 1 ({})", params[0].name())));
    }
    cases
}

// === impl Param ===

impl Param {
    fn name(self) -> &'static str {
        match self {
            Self::BlockHash => "block_hash",
            Self::TxHash => "tx_hash",
            Self::Number => "block_number",
            Self::Tag => "block_tag",
            Self::Full => "return_full_txns",
            Self::Index => "index",
        }
    }

    fn expected(self) -> &'static str {
        match self {
            Self::BlockHash | Self::TxHash => "a string of 0x and 64 hex digits",
            Self::Number | Self::Tag => "a string: a hex number such as \"0x1b4\", or latest",
            Self::Full => "true or false",
            Self::Index => "an integer such as 3, or a hex quantity such as \"0x3\"",
        }
    }

    fn good(self) -> &'static str {
        match self {
            Self::BlockHash | Self::TxHash => r##""0x#""##,
            Self::Number | Self::Tag => r#""0x1""#,
            Self::Full => "true",
            Self::Index => "0",
        }
    }

    fn bad(self) -> &'static [Bad] {
        match self {
            Self::BlockHash | Self::TxHash => HASHES,
            Self::Number | Self::Tag => NUMBERS,
            Self::Full => FLAGS,
            Self::Index => INDEXES,
        }
    }
}

const HASHES: &[Bad] = &[
    // Strings.
    (r#""""#, "a hash starts with 0x"),
    (r#""0x""#, "a hash has 64 hex digits, not 0"),
    (r#""0x0""#, "a hash has 64 hex digits, not 1"),
    (r##""0x#0""##, "a hash has 64 hex digits, not 65"),
    (r##""0x#00""##, "a hash has 64 hex digits, not 66"),
    (r##""0x##""##, "a hash has 64 hex digits, not 128"),
    (
        r#""0xabcdef0123456789abcdef0123456789abcdef0123456789abcdef012345678""#,
        "a hash has 64 hex digits, not 63",
    ),
    (r#""0xabcdef0123456789abcdef0123456789abcdef01""#, "a hash has 64 hex digits, not 40"),
    (r##""#""##, "a hash starts with 0x"),
    (r##""0X#""##, "a hash starts with 0x"),
    (r##""x#""##, "a hash starts with 0x"),
    (r##"" 0x#""##, "a hash starts with 0x"),
    (r##""0x# ""##, "a hash has only hex digits"),
    (r##""0x#\n""##, "a hash has only hex digits"),
    (r##""0x#\u0000""##, "a hash has only hex digits"),
    (r##""0x0x#""##, "a hash has only hex digits"),
    (r##""-0x#""##, "a hash starts with 0x"),
    (r#""0xgbcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789""#, "a hash has only hex digits"),
    (r#""0x+bcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789""#, "a hash has only hex digits"),
    (r#""0xébcdef0123456789abcdef0123456789abcdef0123456789abcdef012345678""#, "a hash has only hex digits"),
    (r#""latest""#, "a hash starts with 0x"),
    // Not strings.
    ("null", "expected a string of 0x and 64 hex digits"),
    ("0", "expected a string of 0x and 64 hex digits"),
    ("1.5e3", "expected a string of 0x and 64 hex digits"),
    ("true", "expected a string of 0x and 64 hex digits"),
    ("[]", "expected a string of 0x and 64 hex digits"),
    (r##"["0x#"]"##, "expected a string of 0x and 64 hex digits"),
    ("{}", "expected a string of 0x and 64 hex digits"),
    (r##"{"blockHash":"0x#"}"##, "expected a string of 0x and 64 hex digits"),
];

const NUMBERS: &[Bad] = &[
    // Invalid quantities.
    (r#""0x""#, "a quantity has at least one hex digit"),
    (r#""0x00""#, "a quantity has no leading zeros"),
    (r#""0x01""#, "a quantity has no leading zeros"),
    (r#""0x000000000000000000001""#, "a quantity has no leading zeros"),
    (r#""0x10000000000000000""#, "the quantity is larger than 64 bits"),
    (r##""0x#""##, "the quantity is larger than 64 bits"),
    (r#""0xg""#, "a quantity has only hex digits"),
    (r#""0x-1""#, "a quantity has only hex digits"),
    (r#""0x+1""#, "a quantity has only hex digits"),
    (r#""0x 1""#, "a quantity has only hex digits"),
    (r#""0x1 ""#, "a quantity has only hex digits"),
    (r#""0x1.0""#, "a quantity has only hex digits"),
    (r#""0x1\u0000""#, "a quantity has only hex digits"),
    (r#""0x１""#, "a quantity has only hex digits"),
    // Neither a number nor a tag.
    (r#""""#, "expected a hex number such as 0x1b4, or latest"),
    (r#""0X1""#, "expected a hex number such as 0x1b4, or latest"),
    (r#""-0x1""#, "expected a hex number such as 0x1b4, or latest"),
    (r#"" 0x1""#, "expected a hex number such as 0x1b4, or latest"),
    (r#""0""#, "expected a hex number such as 0x1b4, or latest"),
    (r#""100""#, "expected a hex number such as 0x1b4, or latest"),
    (r#""-1""#, "expected a hex number such as 0x1b4, or latest"),
    (r#""1.5""#, "expected a hex number such as 0x1b4, or latest"),
    (r#""Latest""#, "expected a hex number such as 0x1b4, or latest"),
    (r#""LATEST""#, "expected a hex number such as 0x1b4, or latest"),
    (r#""latest ""#, "expected a hex number such as 0x1b4, or latest"),
    (r#"" latest""#, "expected a hex number such as 0x1b4, or latest"),
    (r#""finalised""#, "expected a hex number such as 0x1b4, or latest"),
    (r#""genesis""#, "expected a hex number such as 0x1b4, or latest"),
    (r#""null""#, "expected a hex number such as 0x1b4, or latest"),
    // Not strings.
    ("null", "expected a string: a hex number"),
    ("0", "expected a string: a hex number"),
    ("-1", "expected a string: a hex number"),
    ("1.0", "expected a string: a hex number"),
    ("1e2", "expected a string: a hex number"),
    ("true", "expected a string: a hex number"),
    ("[]", "expected a string: a hex number"),
    (r#"["latest"]"#, "expected a string: a hex number"),
    ("{}", "expected a string: a hex number"),
    (r#"{"blockNumber":"0x1"}"#, "expected a string: a hex number"),
];

const FLAGS: &[Bad] = &[
    ("null", "expected true or false"),
    ("0", "expected true or false"),
    ("1", "expected true or false"),
    (r#""true""#, "expected true or false"),
    (r#""false""#, "expected true or false"),
    (r#""""#, "expected true or false"),
    (r#""0x1""#, "expected true or false"),
    ("[]", "expected true or false"),
    ("[true]", "expected true or false"),
    ("{}", "expected true or false"),
];

const INDEXES: &[Bad] = &[
    // Numbers that are no index.
    ("-1", "expected an integer such as 3"),
    ("-0", "expected an integer such as 3"),
    ("1.0", "expected an integer such as 3"),
    ("0.0", "expected an integer such as 3"),
    ("0.5", "expected an integer such as 3"),
    ("1e2", "expected an integer such as 3"),
    ("1E2", "expected an integer such as 3"),
    ("0e0", "expected an integer such as 3"),
    ("18446744073709551616", "expected an integer such as 3"),
    ("1e999999", "expected an integer such as 3"),
    // Strings.
    (r#""1""#, "a quantity starts with 0x"),
    (r#""-1""#, "a quantity starts with 0x"),
    (r#""""#, "a quantity starts with 0x"),
    (r#""0X1""#, "a quantity starts with 0x"),
    (r#""-0x1""#, "a quantity starts with 0x"),
    (r#"" 0x1""#, "a quantity starts with 0x"),
    (r#""latest""#, "a quantity starts with 0x"),
    (r#""0x""#, "a quantity has at least one hex digit"),
    (r#""0x00""#, "a quantity has no leading zeros"),
    (r#""0x01""#, "a quantity has no leading zeros"),
    (r#""0x1g""#, "a quantity has only hex digits"),
    (r#""0x1.0""#, "a quantity has only hex digits"),
    (r#""0x-1""#, "a quantity has only hex digits"),
    (r#""0x10000000000000000""#, "the quantity is larger than 64 bits"),
    // Neither numbers nor strings.
    ("null", "expected an integer such as 3"),
    ("true", "expected an integer such as 3"),
    ("false", "expected an integer such as 3"),
    ("[]", "expected an integer such as 3"),
    ("[0]", "expected an integer such as 3"),
    ("{}", "expected an integer such as 3"),
];
