// Go's net/http. Usage: with_net_http BASE
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

type step struct{ method, path, body, answer string }

func main() {
	var steps []step
	for n := 0; n < 5; n++ {
		steps = append(steps, step{"GET", fmt.Sprintf("/json?n=%d", n), "", fmt.Sprintf(`{"n":"%d"}`, n)})
	}
	upload := strings.Repeat("upload\n", 20_000)
	steps = append(steps, step{"POST", "/upload", upload, fmt.Sprintf(`{"length":"%d"}`, len(upload))})
	var events strings.Builder
	for n := 0; n < 20; n++ {
		fmt.Fprintf(&events, "id: %d\ndata: event %d\n\n", n, n)
	}
	steps = append(steps, step{"GET", "/events", "", events.String()})
	steps = append(steps, step{"GET", "/large", "", strings.Repeat("andante\n", 512*1024)})
	spoken := ""
	for _, step := range steps {
		request, err := http.NewRequest(step.method, os.Args[1]+step.path, strings.NewReader(step.body))
		check(err)
		answer, err := http.DefaultClient.Do(request)
		check(err)
		text, err := io.ReadAll(answer.Body)
		check(err)
		answer.Body.Close()
		if answer.StatusCode != 200 || string(text) != step.answer {
			check(fmt.Errorf("%s %s: got %d %.200s", step.method, step.path, answer.StatusCode, text))
		}
		if !strings.Contains(spoken, answer.Proto) {
			spoken += " " + answer.Proto
		}
	}
	fmt.Println("spoke" + spoken)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
