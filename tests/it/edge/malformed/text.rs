//! Bodies that are not JSON get the error `-32700`, with the id `null`, because the parser finds no id.

use super::{Case, PARSE};

const GOOD: &str = r#"{"jsonrpc":"2.0","id":"\u0061","method":"eth_getBlockByNumber","params":["0x1",true,-1.5e+3,null,{}]}"#;

pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<_> =
        lines().into_iter().map(|(name, body, says)| Case::error(name, body, PARSE, "null", says)).collect();
    // Cuts at every byte: inside names, strings, escapes, numbers, words and between brackets.
    cases.extend((0..GOOD.len()).map(|end| {
        Case::error(format!("cut off after {end} bytes"), GOOD[..end].to_owned(), PARSE, "null", "not JSON")
    }));
    cases
}

#[rustfmt::skip]
fn lines() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let deep = 1_000_000;
    let bytes = |text: &str| text.as_bytes().to_vec();
    let utf_16 = |unit: fn(u16) -> [u8; 2]| GOOD.encode_utf16().flat_map(unit).collect::<Vec<u8>>();
    let latin_1 = [br#"{"jsonrpc":"2.0","id":1,"method":"eth_caf"#.as_slice(), b"\xe9\"}"].concat();
    vec![
        // Bodies without the start of a value.
        ("nothing at all",               bytes(""),                                   "expected a value at byte 0"),
        ("white space",                  bytes(" \t\r\n "),                           "expected a value at byte 5"),
        ("a NUL",                        bytes("\0"),                                 "expected a value at byte 0"),
        ("a form feed",                  bytes("\x0c{}"),                             "expected a value at byte 0"),
        ("a vertical tab after",         bytes("{}\x0b"),                             "expected the end at byte 2"),
        ("a no-break space",             bytes("\u{a0}{}"),                           "expected a value at byte 0"),
        // Other encodings.
        ("a byte order mark",            [b"\xef\xbb\xbf", GOOD.as_bytes()].concat(), "expected a value at byte 0"),
        ("UTF-16, big end first",        utf_16(u16::to_be_bytes),                    "not JSON"),
        ("UTF-16, little end first",     utf_16(u16::to_le_bytes),                    "not JSON"),
        ("UTF-16 with its mark",         [b"\xff\xfe".to_vec(), utf_16(u16::to_le_bytes)].concat(), "not UTF-8: byte 0"),
        ("Latin-1",                      latin_1,                                     "not UTF-8: byte 41"),
        ("an overlong slash",            b"\"\xc0\xaf\"".to_vec(),                    "not UTF-8: byte 1"),
        ("half a surrogate pair",        b"\"\xed\xa0\x80\"".to_vec(),                "not UTF-8: byte 1"),
        ("a character cut short",        b"\"\xe2\x82\"".to_vec(),                    "not UTF-8: byte 1"),
        ("past Unicode's end",           b"\"\xf4\x90\x80\x80\"".to_vec(),            "not UTF-8: byte 1"),
        ("a bad byte after the end",     b"{}\xff".to_vec(),                          "not UTF-8: byte 2"),
        ("gzip",                         b"\x1f\x8b\x08\x00\x00\x00\x00\x00".to_vec(), "not UTF-8: byte 1"),
        // Other languages.
        ("a form",                       bytes("method=eth_chainId&id=1"),            "expected a value at byte 0"),
        ("a page",                       bytes("<!doctype html>"),                    "expected a value at byte 0"),
        ("a bare word",                  bytes("eth_chainId"),                        "expected a value at byte 0"),
        ("single quotes",                bytes("{'jsonrpc':'2.0'}"),                  "a member's name in quotes at byte 1"),
        ("a name without quotes",        bytes("{jsonrpc:\"2.0\"}"),                  "a member's name in quotes at byte 1"),
        ("a line comment",               bytes("// hello\n{}"),                       "expected a value at byte 0"),
        ("a comment inside",             bytes("{/* hello */}"),                      "a member's name in quotes at byte 1"),
        ("a hash comment",               bytes("{} # hello"),                         "expected the end at byte 3"),
        ("NaN",                          bytes(r#"{"id":NaN}"#),                      "expected a value at byte 6"),
        ("Infinity",                     bytes(r#"{"id":Infinity}"#),                 "expected a value at byte 6"),
        ("minus Infinity",               bytes(r#"{"id":-Infinity}"#),                "expected a digit at byte 7"),
        ("undefined",                    bytes(r#"{"id":undefined}"#),                "expected a value at byte 6"),
        ("True",                         bytes(r#"{"id":True}"#),                     "expected a value at byte 6"),
        ("nil",                          bytes(r#"{"id":nil}"#),                      "expected a value at byte 6"),
        // Numbers that JavaScript or Go might take.
        ("a plus sign",                  bytes(r#"{"id":+1}"#),                       "expected a value at byte 6"),
        ("a leading zero",               bytes(r#"{"id":01}"#),                       "',' or '}' at byte 7"),
        ("a leading point",              bytes(r#"{"id":.5}"#),                       "expected a value at byte 6"),
        ("a trailing point",             bytes(r#"{"id":1.}"#),                       "expected a digit at byte 8"),
        ("an empty exponent",            bytes(r#"{"id":1e}"#),                       "expected a digit at byte 8"),
        ("a single minus",                 bytes(r#"{"id":-}"#),                        "expected a digit at byte 7"),
        ("two minuses",                  bytes(r#"{"id":--1}"#),                      "expected a digit at byte 7"),
        ("hex",                          bytes(r#"{"id":0x1}"#),                      "',' or '}' at byte 7"),
        ("digits in groups",             bytes(r#"{"id":1_000}"#),                    "',' or '}' at byte 7"),
        ("a big integer",                bytes(r#"{"id":1n}"#),                       "',' or '}' at byte 7"),
        // Strings.
        ("a line break in a string",     bytes("{\"id\":\"a\nb\"}"),                  "not a control character, at byte 8"),
        ("a tab in a string",            bytes("{\"id\":\"\t\"}"),                    "not a control character, at byte 7"),
        ("a NUL in a name",              bytes("{\"i\0d\":1}"),                       "not a control character, at byte 3"),
        ("an unknown escape",            bytes(r#"{"id":"\x41"}"#),                   r"an escape such as \n at byte 7"),
        ("an escaped quote of Python's", bytes(r#"{"id":"\'"}"#),                     r"an escape such as \n at byte 7"),
        ("too few digits in an escape",  bytes(r#"{"id":"\u12"}"#),                   r"\u and four hex digits at byte 7"),
        ("no digits in an escape",       bytes(r#"{"id":"\uzzzz"}"#),                 r"\u and four hex digits at byte 7"),
        ("a long escape",                bytes(r#"{"id":"\u{61}"}"#),                 r"\u and four hex digits at byte 7"),
        ("a backslash at the end",       bytes(r#"{"id":"\"#),                        r"an escape such as \n at byte 8"),
        // Brackets, commas and colons.
        ("a comma before the end",       bytes(r#"{"id":1,}"#),                       "a member's name in quotes at byte 8"),
        ("a comma to begin with",        bytes(r#"{,"id":1}"#),                       "a member's name in quotes at byte 1"),
        ("a comma in an array's end",    bytes(r#"{"params":[1,]}"#),                 "expected a value at byte 13"),
        ("two commas",                   bytes(r#"{"params":[1,,2]}"#),               "expected a value at byte 13"),
        ("no comma",                     bytes(r#"{"id":1 "method":"m"}"#),           "',' or '}' at byte 8"),
        ("no colon",                     bytes(r#"{"id" 1}"#),                        "expected ':' at byte 6"),
        ("no value",                     bytes(r#"{"id":}"#),                         "expected a value at byte 6"),
        ("a number as name",             bytes(r#"{1:"id"}"#),                        "a member's name in quotes at byte 1"),
        ("brackets crossed",             bytes(r#"{"params":[}]"#),                   "expected a value at byte 11"),
        ("the wrong closing bracket",    bytes(r#"{"id":1]"#),                        "',' or '}' at byte 7"),
        ("a closing bracket alone",      bytes("]"),                                  "expected a value at byte 0"),
        ("a comma after a batch's end",  bytes("[{},]"),                              "expected a value at byte 4"),
        // Trailing garbage.
        ("a brace too many",             bytes("{}}"),                                "expected the end at byte 2"),
        ("two requests in a row",        [GOOD, GOOD].concat().into_bytes(),          "expected the end at byte 101"),
        ("two requests in two lines",    [GOOD, "\n", GOOD].concat().into_bytes(),    "expected the end at byte 102"),
        ("two batches",                  bytes("[{}] [{}]"),                          "expected the end at byte 5"),
        ("a NUL at the end",             bytes("{}\0"),                               "expected the end at byte 2"),
        ("a word after a number",        bytes("1 x"),                                "expected the end at byte 2"),
        // Nesting does not use the stack.
        ("a million arrays, not closed",  "[".repeat(deep).into_bytes(),              "at byte 1000000"),
        ("a million objects, not closed", r#"{"":"#.repeat(deep).into_bytes(),        "at byte 4000000"),
        ("a million arrays, one closed too often", ["[".repeat(deep), "]".repeat(deep + 1)].concat().into_bytes(), "expected the end at byte 2000000"),
        ("a million arrays in params, not closed", [r#"{"id":1,"params":"#, &"[".repeat(deep)].concat().into_bytes(), "at byte 1000017"),
    ]
}
