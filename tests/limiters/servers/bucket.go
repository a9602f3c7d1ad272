// A server behind the limiter of golang.org/x/time/rate. Usage: bucket ADDRESS:PORT RATE BURST
package main

import (
	"log"
	"net/http"
	"os"
	"strconv"

	"golang.org/x/time/rate"
)

func main() {
	perSecond, _ := strconv.ParseFloat(os.Args[2], 64)
	burst, _ := strconv.Atoi(os.Args[3])
	limiter := rate.NewLimiter(rate.Limit(perSecond), burst)
	http.HandleFunc("/items", func(answer http.ResponseWriter, _ *http.Request) {
		if !limiter.Allow() {
			answer.WriteHeader(http.StatusTooManyRequests)
			return
		}
		answer.Header().Set("Content-Type", "application/json")
		answer.Write([]byte(`{"done":true}`))
	})
	log.Fatal(http.ListenAndServe(os.Args[1], nil))
}
