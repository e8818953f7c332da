//! Bodies that are JSON but no JSON-RPC request, and methods that are not served.
//!
//! The id comes back byte for byte wherever the parser can find it.

use super::{Back, Case, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND};

pub(super) fn cases() -> Vec<Case> {
    let refused =
        lines().into_iter().map(|(name, body, code, id, says)| Case::error(name, body, code, id, says));
    let batches = batches().into_iter().map(|(name, body, replies)| Case {
        name: name.into(),
        body: body.into(),
        back: Back::Batch(replies),
    });
    let silent = NOTIFICATIONS.iter().map(|(name, body)| Case {
        name: (*name).into(),
        body: body.as_bytes().into(),
        back: Back::Nothing,
    });
    refused.chain(batches).chain(silent).collect()
}

#[rustfmt::skip]
fn lines() -> Vec<(&'static str, String, i64, &'static str, &'static str)> {
    const NO_OBJECT: &str = "a request is a JSON object";
    const NO_VERSION: &str = r#"jsonrpc must be "2.0""#;
    const NO_METHOD: &str = "method must be a string";
    const NO_ID: &str = "id must be a number, a string or null";
    const NO_ARRAY: &str = "params must be an array of positional parameters";
    const NOT_SERVED: &str = "is not served here";
    let deep = 1_000_000;
    let (opened, closed) = ("[".repeat(deep), "]".repeat(deep));
    let objects = format!("{}1{}", r#"{"":"#.repeat(deep / 2), "}".repeat(deep / 2));
    // Adds members to an otherwise valid envelope.
    let with = |rest: &str| format!(r#"{{"jsonrpc":"2.0",{rest}}}"#);
    let call = |method: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":[]}}"#);
    vec![
        // Other values.
        ("a number",                   "5".into(),                                             INVALID_REQUEST, "null", NO_OBJECT),
        ("a negative zero",            "-0".into(),                                            INVALID_REQUEST, "null", NO_OBJECT),
        ("a number past all floats",   "1e999999".into(),                                      INVALID_REQUEST, "null", NO_OBJECT),
        ("a string",                   r#""eth_chainId""#.into(),                              INVALID_REQUEST, "null", NO_OBJECT),
        ("an empty string",            r#""""#.into(),                                         INVALID_REQUEST, "null", NO_OBJECT),
        ("a request in a string",      r#""{\"jsonrpc\":\"2.0\"}""#.into(),                    INVALID_REQUEST, "null", NO_OBJECT),
        ("null",                       "null".into(),                                          INVALID_REQUEST, "null", NO_OBJECT),
        ("true",                       " true ".into(),                                        INVALID_REQUEST, "null", NO_OBJECT),
        ("false",                      "false".into(),                                         INVALID_REQUEST, "null", NO_OBJECT),
        ("an empty object",            "{}".into(),                                            INVALID_REQUEST, "null", NO_VERSION),
        ("half a million objects",     objects,                                                INVALID_REQUEST, "null", NO_VERSION),
        // The version.
        ("no version",                 r#"{"id":1,"method":"eth_chainId","params":[]}"#.into(), INVALID_REQUEST, "1", NO_VERSION),
        ("version 1.0",                r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#.into(),      INVALID_REQUEST, "1",    NO_VERSION),
        ("version 2",                  r#"{"jsonrpc":"2","id":1,"method":"m"}"#.into(),        INVALID_REQUEST, "1",    NO_VERSION),
        ("a space in the version",     r#"{"jsonrpc":"2.0 ","id":1,"method":"m"}"#.into(),     INVALID_REQUEST, "1",    NO_VERSION),
        ("a number as version",        r#"{"jsonrpc":2.0,"id":1,"method":"m"}"#.into(),        INVALID_REQUEST, "1",    NO_VERSION),
        ("null as version",            r#"{"jsonrpc":null,"id":1,"method":"m"}"#.into(),       INVALID_REQUEST, "1",    NO_VERSION),
        ("an array as version",        r#"{"jsonrpc":["2.0"],"id":1,"method":"m"}"#.into(),    INVALID_REQUEST, "1",    NO_VERSION),
        ("a name in capitals",         r#"{"JSONRPC":"2.0","id":1,"method":"m"}"#.into(),      INVALID_REQUEST, "1",    NO_VERSION),
        ("the last version counts",    with(r#""id":1,"method":"m","jsonrpc":"1.0""#),         INVALID_REQUEST, "1",    NO_VERSION),
        ("no version and no id",       r#"{"method":"eth_chainId"}"#.into(),                   INVALID_REQUEST, "null", NO_VERSION),
        // The method.
        ("no method",                  with(r#""id":1"#),                                      INVALID_REQUEST, "1",    NO_METHOD),
        ("a response",                 with(r#""id":1,"result":"0x1""#),                       INVALID_REQUEST, "1",    NO_METHOD),
        ("null as method",             with(r#""id":1,"method":null"#),                        INVALID_REQUEST, "1",    NO_METHOD),
        ("a number as method",         with(r#""id":1,"method":1"#),                           INVALID_REQUEST, "1",    NO_METHOD),
        ("a word as method",           with(r#""id":1,"method":true"#),                        INVALID_REQUEST, "1",    NO_METHOD),
        ("an array as method",         with(r#""id":1,"method":["eth_chainId"]"#),             INVALID_REQUEST, "1",    NO_METHOD),
        ("an object as method",        with(r#""id":1,"method":{}"#),                          INVALID_REQUEST, "1",    NO_METHOD),
        ("the last method counts",     with(r#""id":1,"method":"eth_chainId","method":7"#),    INVALID_REQUEST, "1",    NO_METHOD),
        ("neither method nor id",      with(r#""params":[]"#),                                 INVALID_REQUEST, "null", NO_METHOD),
        // The id.
        ("true as id",                 with(r#""id":true,"method":"eth_chainId""#),            INVALID_REQUEST, "null", NO_ID),
        ("false as id",                with(r#""id":false,"method":"eth_chainId""#),           INVALID_REQUEST, "null", NO_ID),
        ("an array as id",             with(r#""id":[1],"method":"eth_chainId""#),             INVALID_REQUEST, "null", NO_ID),
        ("an object as id",            with(r#""id":{},"method":"eth_chainId""#),              INVALID_REQUEST, "null", NO_ID),
        ("a million arrays as id",     with(&format!(r#""id":{opened}{closed},"method":"m""#)), INVALID_REQUEST, "null", NO_ID),
        ("the last id counts",         with(r#""id":1,"method":"eth_chainId","id":[]"#),       INVALID_REQUEST, "null", NO_ID),
        // The params.
        ("named params",               with(r#""id":1,"method":"eth_getBlockByNumber","params":{"block":"0x1","full":true}"#), INVALID_PARAMS, "1", NO_ARRAY),
        ("an empty object as params",  with(r#""id":1,"method":"eth_chainId","params":{}"#),   INVALID_PARAMS,  "1",    NO_ARRAY),
        ("a string as params",         with(r#""id":1,"method":"eth_chainId","params":"0x1""#), INVALID_PARAMS, "1",    NO_ARRAY),
        ("a number as params",         with(r#""id":1,"method":"eth_chainId","params":1"#),    INVALID_PARAMS,  "1",    NO_ARRAY),
        ("a word as params",           with(r#""id":1,"method":"eth_chainId","params":false"#), INVALID_PARAMS, "1",    NO_ARRAY),
        ("the last params count",      with(r#""id":1,"method":"eth_chainId","params":[],"params":{}"#), INVALID_PARAMS, "1", NO_ARRAY),
        ("a million arrays as a param", with(&format!(r#""id":1,"method":"eth_getTransactionByHash","params":[{opened}{closed}]"#)), INVALID_PARAMS, "1", "parameter 1 (tx_hash)"),
        ("a million params",           with(&format!(r#""id":1,"method":"eth_getTransactionByHash","params":[{}0]"#, "0,".repeat(deep))), INVALID_PARAMS, "1", "parameter 1 (tx_hash)"),
        // Ids come back unchanged, regardless of other faults.
        ("an id of null",              with(r#""id":null"#),                                   INVALID_REQUEST, "null", NO_METHOD),
        ("an id of 0",                 with(r#""id":0"#),                                      INVALID_REQUEST, "0",    NO_METHOD),
        ("an id of -0",                with(r#""id":-0"#),                                     INVALID_REQUEST, "-0",   NO_METHOD),
        ("an id of 1.0",               with(r#""id": 1.0 ,"method":"m","params":{}"#),         INVALID_PARAMS,  "1.0",  NO_ARRAY),
        ("an id of 1e3",               with(r#""id":1e3,"method":"debug_x""#),                 METHOD_NOT_FOUND, "1e3", NOT_SERVED),
        ("an id past all integers",    with(r#""id":1180591620717411303424,"method":"eth_getTransactionByHash""#), INVALID_PARAMS, "1180591620717411303424", "parameter 1 (tx_hash) is missing"),
        ("an id past all floats",      with(r#""id":-1.5E+99999"#),                            INVALID_REQUEST, "-1.5E+99999", NO_METHOD),
        ("an id of nothing",           with(r#""id":"""#),                                     INVALID_REQUEST, r#""""#, NO_METHOD),
        ("an id with escapes",         with(r#""id":"\u0061\/\"\ud800""#),                     INVALID_REQUEST, r#""\u0061\/\"\ud800""#, NO_METHOD),
        ("an id in other letters",     with(r#""id":"żółw 🐢""#),                              INVALID_REQUEST, r#""żółw 🐢""#, NO_METHOD),
        ("an escaped name of the id",  with(r#""\u0069d":7"#),                                 INVALID_REQUEST, "7",    NO_METHOD),
        ("the id after the failure",   r#"{"jsonrpc":5,"method":5,"params":5,"id":"last"}"#.into(), INVALID_REQUEST, r#""last""#, NO_VERSION),
        // Methods that are not served.
        ("debug_",                     call("debug_traceTransaction"),                         METHOD_NOT_FOUND, "1",   "the method debug_traceTransaction is not served here"),
        ("admin_",                     call("admin_peers"),                                    METHOD_NOT_FOUND, "1",   NOT_SERVED),
        ("personal_",                  call("personal_unlockAccount"),                         METHOD_NOT_FOUND, "1",   NOT_SERVED),
        ("engine_",                    call("engine_newPayloadV4"),                            METHOD_NOT_FOUND, "1",   NOT_SERVED),
        ("txpool_",                    call("txpool_content"),                                 METHOD_NOT_FOUND, "1",   NOT_SERVED),
        ("anvil_",                     call("anvil_setBalance"),                               METHOD_NOT_FOUND, "1",   NOT_SERVED),
        ("rpc_",                       call("rpc_modules"),                                    METHOD_NOT_FOUND, "1",   NOT_SERVED),
        ("no name",                    call(""),                                               METHOD_NOT_FOUND, "1",   NOT_SERVED),
        ("a space for a name",         call(" "),                                              METHOD_NOT_FOUND, "1",   NOT_SERVED),
        ("a space before the name",    call(" eth_getBlockByNumber"),                          METHOD_NOT_FOUND, "1",   NOT_SERVED),
        ("a capital in the prefix",    call("Eth_getBlockByNumber"),                           METHOD_NOT_FOUND, "1",   NOT_SERVED),
        ("a prefix and no underscore", call("eth"),                                            METHOD_NOT_FOUND, "1",   NOT_SERVED),
        ("a name in other letters",    call("ετη_chainId"),                                    METHOD_NOT_FOUND, "1",   "the method ετη_chainId is"),
        ("a full-width name",          call("ｅｔｈ_chainId"),                                 METHOD_NOT_FOUND, "1",   NOT_SERVED),
        ("a name with a line break",   call(r"debug_\n\u0000x"),                               METHOD_NOT_FOUND, "1",   "debug_\n\0x"),
        ("half a surrogate as name",   call(r"\ud800"),                                        METHOD_NOT_FOUND, "1",   NOT_SERVED),
        ("a name of a million letters", call(&"x".repeat(deep)),                               METHOD_NOT_FOUND, "1",   "x… is not served here"),
        ("a long name of wide letters", call(&"é".repeat(deep)),                               METHOD_NOT_FOUND, "1",   "é… is not served here"),
        // Batches as a whole.
        ("an empty batch",             "[]".into(),                                            INVALID_REQUEST, "null", "the batch is empty"),
        ("an empty batch with space",  " [ \n ] ".into(),                                      INVALID_REQUEST, "null", "the batch is empty"),
        ("one call too many",          format!("[{}]", [call("eth_chainId").as_str(); 1001].join(",")), INVALID_REQUEST, "null", "more than 1000 entries"),
        ("a million calls of nothing", format!("[{}0]", "0,".repeat(deep)),                    INVALID_REQUEST, "null", "more than 1000 entries"),
    ]
}

/// Error code and raw id of each reply.
type Replies = Vec<(Option<i64>, &'static str)>;

/// A bad entry does not affect the others; a notification gets no reply.
#[rustfmt::skip]
fn batches() -> Vec<(&'static str, String, Replies)> {
    const JUNK: (Option<i64>, &str) = (Some(INVALID_REQUEST), "null");
    let good = r#"{"jsonrpc":"2.0","id":7,"method":"eth_chainId"}"#;
    let note = r#"{"jsonrpc":"2.0","method":"eth_chainId"}"#;
    let deep = 1_000_000;
    vec![
        ("a number in a batch",        "[1]".into(),                       vec![JUNK]),
        ("numbers in a batch",         "[1,2,3]".into(),                   vec![JUNK; 3]),
        ("one of each kind",           r#"[null,true,0,"",[],{}]"#.into(), vec![JUNK; 6]),
        ("a batch in a batch",         format!("[[{good}]]"),              vec![JUNK]),
        ("an empty batch in a batch",  "[[]]".into(),                      vec![JUNK]),
        ("a million arrays",           ["[".repeat(deep), "]".repeat(deep)].concat(), vec![JUNK]),
        ("good, junk, good",           format!("[{good},1,{good}]"),       vec![(None, "7"), JUNK, (None, "7")]),
        ("good, a batch, good",        format!("[{good},[{good}],{good}]"), vec![(None, "7"), JUNK, (None, "7")]),
        ("junk with an id",            format!(r#"[{{"id":"x"}},{good}]"#), vec![(Some(INVALID_REQUEST), r#""x""#), (None, "7")]),
        ("a note, junk",               format!("[{note},1]"),              vec![JUNK]),
        ("named params, good",         format!(r#"[{{"jsonrpc":"2.0","id":8,"method":"m","params":{{}}}},{good}]"#), vec![(Some(INVALID_PARAMS), "8"), (None, "7")]),
        ("not served, good",           format!(r#"[{{"jsonrpc":"2.0","id":8,"method":"debug_x"}},{good}]"#), vec![(Some(METHOD_NOT_FOUND), "8"), (None, "7")]),
        ("equal ids, both bad",        r#"[{"id":7},{"id":7}]"#.into(),    vec![(Some(INVALID_REQUEST), "7"); 2]),
        ("a thousand times junk",      format!("[{}0]", "0,".repeat(999)), vec![JUNK; 1000]),
    ]
}

/// Malformed notifications, which get no reply.
const NOTIFICATIONS: &[(&str, &str)] = &[
    ("a note with named params", r#"{"jsonrpc":"2.0","method":"eth_chainId","params":{}}"#),
    ("a note with a bad param", r#"{"jsonrpc":"2.0","method":"eth_getTransactionReceipt","params":[1]}"#),
    ("a note that lacks params", r#"{"jsonrpc":"2.0","method":"eth_getTransactionReceipt"}"#),
    ("a note to a method not served", r#"{"jsonrpc":"2.0","method":"debug_setHead","params":["0x0"]}"#),
    ("a note to no method", r#"{"jsonrpc":"2.0","method":""}"#),
    ("an id whose name is in capitals", r#"{"jsonrpc":"2.0","ID":1,"method":"debug_x"}"#),
];
