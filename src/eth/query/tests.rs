use proptest::prelude::*;

use super::*;

const HASH: &str = "0xABcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789";

fn read(method: &str, params: &str) -> Result<String, String> {
    Query::read(method, &Params::from_own(params.to_owned()))
        .expect("method is in Query::METHODS")
        .map(|query| {
            assert_eq!(query.method(), method);
            String::from_utf8(query.params().as_bytes().to_vec()).unwrap()
        })
        .map_err(|error| error.to_string())
}

#[test]
fn params_become_canonical() {
    let lower = HASH.to_lowercase();
    for (method, params, canonical) in [
        ("eth_getBlockByHash", format!(r#"[ "{HASH}" , true ]"#), format!(r#"["{lower}",true]"#)),
        (
            "eth_getBlockByHash",
            format!(r#"["\u0030x{}",false]"#, &HASH[2..]),
            format!(r#"["{lower}",false]"#),
        ),
        ("eth_getBlockByNumber", r#"["0xAb",false]"#.into(), r#"["0xab",false]"#.into()),
        ("eth_getBlockByNumber", r#"["finalized",true]"#.into(), r#"["finalized",true]"#.into()),
        ("eth_getTransactionByHash", format!(r#"["{HASH}"]"#), format!(r#"["{lower}"]"#)),
        ("eth_getTransactionReceipt", format!(r#"["{HASH}"]"#), format!(r#"["{lower}"]"#)),
        (
            "eth_getTransactionByBlockHashAndIndex",
            format!(r#"["{HASH}",10]"#),
            format!(r#"["{lower}","0xa"]"#),
        ),
        (
            "eth_getTransactionByBlockNumberAndIndex",
            r#"["latest","0xA"]"#.into(),
            r#"["latest","0xa"]"#.into(),
        ),
        ("eth_getTransactionByBlockNumberAndIndex", r#"["0x0",0]"#.into(), r#"["0x0","0x0"]"#.into()),
    ] {
        assert_eq!(read(method, &params), Ok(canonical), "{method} {params}");
    }
}

#[test]
fn refusals_name_the_parameter_and_its_expected_form() {
    for (method, params, message) in [
        ("eth_getBlockByHash", "[]", "parameter 1 (block_hash) is missing: a string of 0x and 64 hex digits"),
        (
            "eth_getBlockByHash",
            "[5,true]",
            "parameter 1 (block_hash): expected a string of 0x and 64 hex digits",
        ),
        (
            "eth_getBlockByHash",
            r#"["0xabc",true]"#,
            "parameter 1 (block_hash): a hash has 64 hex digits, not 3",
        ),
        ("eth_getBlockByNumber", r#"["0x1"]"#, "parameter 2 (return_full_txns) is missing: true or false"),
        ("eth_getBlockByNumber", r#"["0x1",1]"#, "parameter 2 (return_full_txns): expected true or false"),
        ("eth_getBlockByNumber", r#"["0x1",true,1]"#, "expected 2 parameters, got 3"),
        (
            "eth_getBlockByNumber",
            r#"["0x01",true]"#,
            "parameter 1 (block_number): a quantity has no leading zeros",
        ),
        (
            "eth_getBlockByNumber",
            r#"["newest",true]"#,
            "parameter 1 (block_number): expected a hex number such as 0x1b4, or latest, safe, finalized, earliest \
             or pending",
        ),
        (
            "eth_getTransactionByBlockNumberAndIndex",
            r#"["0x1",1.0]"#,
            r#"parameter 2 (index): expected an integer such as 3, or a hex quantity such as "0x3""#,
        ),
    ] {
        assert_eq!(read(method, params), Err(message.to_owned()), "{method} {params}");
    }
    for index in
        ["-1", "-0", "1e2", "true", "null", "[0]", "18446744073709551616", "\"1\"", "\"0x\"", "\"0x01\""]
    {
        assert!(
            read("eth_getTransactionByBlockNumberAndIndex", &format!(r#"["latest",{index}]"#)).is_err(),
            "{index}"
        );
    }
}

#[test]
fn receipts_query_accepts_every_block_form() {
    let hash = format!("0x{}", "ab".repeat(32));
    let read =
        |params: String| Query::read("eth_getBlockReceipts", &Params::from_own(params)).map(Result::unwrap);
    let query = Query::new(Part::Receipts, At::Hash(hash.parse().unwrap()));
    let by_hash = Some(query);
    assert_eq!(read(format!(r#"["{hash}"]"#)), by_hash);
    assert_eq!(read(format!(r#"[{{"blockHash":"{hash}"}}]"#)), by_hash);
    for required in [false, true] {
        let params = format!(r#"[{{"blockHash":"{hash}","requireCanonical":{required}}}]"#);
        assert_eq!(read(params.clone()), by_hash);
        assert_eq!(query.requires_canonical(&Params::from_own(params)), required);
    }
    let by_number = Some(Query::new(Part::Receipts, BlockNumber(16)));
    assert_eq!(read(r#"[{"blockNumber":"0x10"}]"#.into()), by_number);
    for odd in
        [r#"{"blockNumber":16}"#.to_owned(), format!(r#"{{"blockNumber":"0x1","blockHash":"{hash}"}}"#)]
    {
        assert_eq!(read(format!("[{odd}]")), None, "{odd}");
    }
    assert_eq!(read(r#"["latest"]"#.into()), Some(Query::new(Part::Receipts, Tag::Latest)));
    assert_eq!(read(r#"["0x10"]"#.into()), by_number);
    for odd in ["[]", "[1]", r#"["0x01"]"#, r#"["latest",1]"#, "[{}]", "[null]"] {
        assert_eq!(read(odd.into()), None, "{odd}");
    }
}

proptest! {
    #[test]
    fn canonical_params_parse_unchanged(number: u64, index: u64, full: bool, hash: [u8; 32]) {
        let hash = format!("{:#x}", alloy_primitives::B256::from(hash));
        for (method, params) in [
            ("eth_getBlockByHash", format!(r#"["{hash}",{full}]"#)),
            ("eth_getBlockByNumber", format!(r#"["{number:#x}",{full}]"#)),
            ("eth_getTransactionByBlockHashAndIndex", format!(r#"["{hash}","{index:#x}"]"#)),
            ("eth_getTransactionByBlockNumberAndIndex", format!(r#"["{number:#x}","{index:#x}"]"#)),
        ] {
            prop_assert_eq!(read(method, &params), Ok(params));
        }
    }
}
