// Parses the arguments.

package lockwheel.kills;

import java.util.List;

/** The arguments. The kind of the servers is empty if there is one server. */
record Settings(
        String library,
        String kind,
        List<String> servers,
        int seed,
        int threads,
        int leastLeaseMs,
        int mostLeaseMs,
        int replyTimeoutMs) {

    static Settings of(String[] words) {
        int[] numbers = new int[5];
        for (int place = 0; place < numbers.length; place++) {
            numbers[place] = Integer.parseInt(words[place + 2]);
        }
        String kind = words[1].contains("=") ? words[1].substring(0, words[1].indexOf('=')) : "";
        String servers = words[1].substring(words[1].indexOf('=') + 1);
        return new Settings(
                words[0],
                kind,
                List.of(servers.split(",")),
                numbers[0],
                numbers[1],
                numbers[2],
                numbers[3],
                numbers[4]);
    }

    boolean hasSentinels() {
        return kind.equals("sentinel");
    }
}
