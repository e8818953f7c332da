// Go decodes the stitched gzip streams: go run gunzip.go PROXY_URL BLOCK_HASH
// Compares each gzip answer with the plain one, decoded by compress/gzip and by net/http, which requests gzip by
// default.
package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing/iotest"
)

func check(err error) {
	if err != nil {
		fmt.Println("FAIL", err)
		os.Exit(1)
	}
}

func fail(what string) { check(fmt.Errorf("%s", what)) }

func post(url, body, encoding string) (*http.Response, []byte) {
	request, err := http.NewRequest("POST", url, strings.NewReader(body))
	check(err)
	request.Header.Set("content-type", "application/json")
	if encoding != "" {
		request.Header.Set("accept-encoding", encoding)
	}
	response, err := http.DefaultClient.Do(request)
	check(err)
	answer, err := io.ReadAll(response.Body)
	check(err)
	return response, answer
}

func gunzip(stream io.Reader, more bool) []byte {
	reader, err := gzip.NewReader(stream)
	check(err)
	reader.Multistream(more)
	text, err := io.ReadAll(reader)
	check(err)
	check(reader.Close())
	return text
}

func main() {
	url, block := os.Args[1], os.Args[2]
	full := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByHash","params":["%s",true]}`, block)
	thin := fmt.Sprintf(`{"jsonrpc":"2.0","id":"é","method":"eth_getBlockByHash","params":["%s",false]}`, block)
	receipts := fmt.Sprintf(`{"jsonrpc":"2.0","id":null,"method":"eth_getBlockReceipts","params":["%s"]}`, block)
	chain := `{"jsonrpc":"2.0","id":7,"method":"eth_chainId","params":[]}`
	batch := "[" + strings.Join([]string{full, chain, receipts, receipts, thin}, ",") + "]"
	for _, body := range []string{full, thin, receipts, batch} {
		_, plain := post(url, body, "identity")
		response, packed := post(url, body, "gzip")
		if response.Header.Get("content-encoding") != "gzip" || response.ContentLength != int64(len(packed)) {
			fail(fmt.Sprint(response.Header))
		}
		if !bytes.Equal(gunzip(bytes.NewReader(packed), true), plain) {
			fail("compress/gzip")
		}
		if !bytes.Equal(gunzip(iotest.OneByteReader(bytes.NewReader(packed)), false), plain) {
			fail("compress/gzip, byte by byte")
		}
		response, text := post(url, body, "")
		if !response.Uncompressed || !bytes.Equal(text, plain) {
			fail("net/http")
		}
		fmt.Printf("ok   %d bytes as %d\n", len(plain), len(packed))
	}
}
