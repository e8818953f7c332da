//! Calls for content in a form that is encoded from ordinary blocks, receipts and transactions.

use bytes::{BufMut, Bytes, BytesMut};

use super::{
    At, BlockHash, Part, Query, ShapeError, params,
    query::{read_block, read_hash, read_number_or_tag, requires_canonical},
};
use crate::jsonrpc::{Params, Scanner, unescape};

/// Methods whose answers are encoded from cached content.
const METHODS: [&str; 9] = [
    "debug_getRawBlock",
    "debug_getRawHeader",
    "debug_getRawReceipts",
    "debug_getRawTransaction",
    "eth_getHeaderByHash",
    "eth_getHeaderByNumber",
    "eth_getRawTransactionByBlockHashAndIndex",
    "eth_getRawTransactionByBlockNumberAndIndex",
    "eth_getRawTransactionByHash",
];

/// Members of a block that are not members of its header in JSON.
const NOT_IN_HEADER: [&str; 5] = ["transactions", "uncles", "withdrawals", "size", "totalDifficulty"];

/// Form of an encoded answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RawForm {
    /// A header as JSON.
    JsonHeader,
    /// A header as RLP.
    Header,
    /// A block as RLP.
    Block,
    /// A list of all receipts of a block, each in the form of EIP-2718.
    Receipts,
    /// A transaction in the form of EIP-2718.
    Transaction,
}

/// A call for an encoded answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawCall {
    /// Form of the answer.
    pub form: RawForm,
    /// The query for the content from which the answer is encoded; for receipts, the query for their block.
    pub query: Query,
}

// === impl RawCall ===

impl RawCall {
    /// Returns whether this method has encoded answers.
    pub fn is_method(method: &str) -> bool {
        METHODS.contains(&method)
    }

    /// Parses a call; `None` for another method, and for parameters in an unknown form.
    pub fn read(method: &str, params: &Params) -> Option<Self> {
        let of_block = |form, part, read: fn(&str) -> Option<At>| {
            let mut elements = params.elements();
            match (elements.next(), elements.next()) {
                (Some(raw), None) if !requires_canonical(raw) => {
                    Some(Self { form, query: Query::new(part, read(raw)?) })
                }
                _ => None,
            }
        };
        let of_transaction = |query| Self { form: RawForm::Transaction, query };
        let in_block = |read: fn(&str) -> Option<At>| {
            let mut reader = params::read(params);
            let block = read(reader.raw()?)?;
            let index = reader.position("index").ok()?;
            reader.end().ok()?;
            Some(of_transaction(Query::transaction_in(block, index)))
        };
        match method {
            "debug_getRawHeader" => of_block(RawForm::Header, Part::BlockWithHashes, read_block),
            "debug_getRawBlock" => of_block(RawForm::Block, Part::Block, read_block),
            "debug_getRawReceipts" => of_block(RawForm::Receipts, Part::Block, read_block),
            "eth_getHeaderByHash" => of_block(RawForm::JsonHeader, Part::BlockWithHashes, read_hash),
            "eth_getHeaderByNumber" => {
                of_block(RawForm::JsonHeader, Part::BlockWithHashes, read_number_or_tag)
            }
            "debug_getRawTransaction" | "eth_getRawTransactionByHash" => {
                let hash = params::single_hash(params)?;
                Some(of_transaction(Query::new(Part::Transaction, hash)))
            }
            "eth_getRawTransactionByBlockHashAndIndex" => in_block(read_hash),
            "eth_getRawTransactionByBlockNumberAndIndex" => in_block(read_number_or_tag),
            _ => None,
        }
    }

    /// Returns the method and the parameters of the same call for the block with this hash.
    pub fn of_block(self, hash: BlockHash) -> (&'static str, Params) {
        let method = match self.form {
            RawForm::JsonHeader => "eth_getHeaderByHash",
            RawForm::Header => "debug_getRawHeader",
            RawForm::Block => "debug_getRawBlock",
            RawForm::Receipts => "debug_getRawReceipts",
            RawForm::Transaction => "eth_getRawTransactionByBlockHashAndIndex",
        };
        let params = match self.query.index {
            Some(index) => format!(r#"["{hash}","{index}"]"#),
            None => format!(r#"["{hash}"]"#),
        };
        (method, Params::from_own(params))
    }
}

/// Cuts the members that are not members of the header out of a block's JSON text. The others keep their order.
///
/// # Errors
/// If the text is not an object.
pub fn header_of_block(block: &str) -> Result<Bytes, ShapeError> {
    let mut scanner = Scanner::new(block);
    if scanner.peek() != Some(b'{') {
        return Err(ShapeError::Not { what: "the block", expected: "an object" });
    }
    scanner.enter();
    let mut header = BytesMut::with_capacity(block.len().min(2048));
    let mut first = true;
    while let Some(name) = scanner.next_member(&mut first)? {
        let value = scanner.value()?;
        if !NOT_IN_HEADER.contains(&&*unescape(&block[name.clone()])) {
            header.put_u8(if header.is_empty() { b'{' } else { b',' });
            header.put_slice(&block.as_bytes()[name.start..value.end]);
        }
    }
    scanner.end()?;
    if header.is_empty() {
        header.put_u8(b'{');
    }
    header.put_u8(b'}');
    Ok(header.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &str, params: &str) -> Option<RawCall> {
        RawCall::read(method, &Params::from_own(params.to_owned()))
    }

    #[test]
    fn header_keeps_the_order_of_the_block() {
        let block = r#"{"b":1, "transactions" : [{"a":"}"}],"\u0073ize":2,"a":{"size":3},"uncles":[] }"#;
        assert_eq!(header_of_block(block).unwrap(), r#"{"b":1,"a":{"size":3}}"#);
        assert_eq!(header_of_block(r#"{"uncles":[]}"#).unwrap(), "{}");
        assert!(header_of_block("[]").is_err());
    }

    #[test]
    fn every_method_has_a_form() {
        let hash = format!("\"0x{}\"", "ab".repeat(32));
        for method in METHODS {
            let block = if method.contains("Number") { "\"0x1\"" } else { &*hash };
            let params =
                if method.contains("AndIndex") { format!("[{block},\"0x0\"]") } else { format!("[{block}]") };
            assert!(read(method, &params).is_some(), "{method} {params}");
            assert!(read(method, &params.replace(']', ",1]")).is_none(), "{method} {params}");
        }
        assert!(read("debug_traceTransaction", &format!("[{hash}]")).is_none());
    }

    #[test]
    fn unknown_parameters_are_not_read() {
        let hash = format!("0x{}", "ab".repeat(32));
        for (method, params) in [
            ("debug_getRawBlock", "[1]".to_owned()),
            ("debug_getRawReceipts", format!(r#"[{{"blockHash":"{hash}","requireCanonical":true}}]"#)),
            ("eth_getRawTransactionByHash", r#"["0x1"]"#.to_owned()),
        ] {
            assert_eq!(read(method, &params), None, "{method} {params}");
        }
        let object = read("debug_getRawReceipts", &format!(r#"[{{"blockHash":"{hash}"}}]"#)).unwrap();
        assert_eq!(object.query, Query::new(Part::Block, At::Hash(hash.parse().unwrap())));
    }
}
