import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.Set;
import java.util.TreeSet;

/** Usage: WithHttpClient BASE. A client as it is made by default, which would rather speak HTTP/2. */
class WithHttpClient {
    static final HttpClient CLIENT = HttpClient.newHttpClient();
    static final Set<String> SPOKEN = new TreeSet<>();

    public static void main(String[] arguments) throws Exception {
        var base = arguments[0];
        for (int n = 0; n < 5; n++) {
            ask(HttpRequest.newBuilder(URI.create(base + "/json?n=" + n)), "{\"n\":\"" + n + "\"}");
        }
        var upload = "upload\n".repeat(20_000);
        var post = HttpRequest.newBuilder(URI.create(base + "/upload")).POST(BodyPublishers.ofString(upload));
        ask(post, "{\"length\":\"" + upload.length() + "\"}");
        var events = new StringBuilder();
        for (int n = 0; n < 20; n++) {
            events.append("id: " + n + "\ndata: event " + n + "\n\n");
        }
        ask(HttpRequest.newBuilder(URI.create(base + "/events")), events.toString());
        ask(HttpRequest.newBuilder(URI.create(base + "/large")), "andante\n".repeat(512 * 1024));
        System.out.println("spoke " + String.join(" ", SPOKEN));
    }

    static void ask(HttpRequest.Builder asked, String expected) throws Exception {
        var request = asked.build();
        var answer = CLIENT.send(request, BodyHandlers.ofString());
        if (answer.statusCode() != 200 || !answer.body().equals(expected)) {
            System.err.println(request + ": got " + answer.statusCode() + " " + answer.body());
            System.exit(1);
        }
        SPOKEN.add(answer.version().toString());
    }
}
