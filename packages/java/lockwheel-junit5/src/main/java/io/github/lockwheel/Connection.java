// A connection to the server: sends commands and decodes RESP2 replies.

package io.github.lockwheel;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * A client for version 2 of the Redis protocol. It runs one command at a time; other threads wait.
 * The next command after the connection was closed opens it again.
 */
final class Connection implements AutoCloseable {
    /** The limit for a reply. Only a reply that never comes takes this long. */
    private static final int LIMIT_SECONDS = 60;

    private final int port;
    private final String password;
    private Socket socket;
    private DataInputStream in;

    /** The password may be null. The first command opens the connection. */
    Connection(int port, String password) {
        this.port = port;
        this.password = password;
    }

    /** Runs one command. Returns a String, a Long, null or a list of these. */
    synchronized Object call(String... command) {
        try {
            if (socket == null) {
                open();
            }
            return exchange(command);
        } catch (IOException error) {
            close();
            throw new LockwheelException(
                    String.join(" ", command) + ": " + error.getMessage(), error);
        }
    }

    private void open() throws IOException {
        socket = new Socket(LockwheelServer.HOST, port);
        socket.setTcpNoDelay(true);
        socket.setSoTimeout(LIMIT_SECONDS * 1000);
        in = new DataInputStream(new BufferedInputStream(socket.getInputStream()));
        if (password != null) {
            exchange("AUTH", password);
        }
    }

    private Object exchange(String... command) throws IOException {
        socket.getOutputStream().write(encode(command));
        try {
            return read();
        } catch (SocketTimeoutException error) {
            throw new IOException("no reply within " + LIMIT_SECONDS + " s", error);
        }
    }

    private static byte[] encode(String... command) {
        var request = new ByteArrayOutputStream();
        request.writeBytes(("*" + command.length + "\r\n").getBytes(StandardCharsets.US_ASCII));
        for (String argument : command) {
            byte[] bytes = argument.getBytes(StandardCharsets.UTF_8);
            request.writeBytes(("$" + bytes.length + "\r\n").getBytes(StandardCharsets.US_ASCII));
            request.writeBytes(bytes);
            request.writeBytes(new byte[] {'\r', '\n'});
        }
        return request.toByteArray();
    }

    private Object read() throws IOException {
        String line = readLine();
        String rest = line.substring(1);
        switch (line.charAt(0)) {
            case '+':
                return rest;
            case '-':
                throw new LockwheelException(rest);
            case ':':
                return Long.valueOf(rest);
            case '$':
                return readBulk(Integer.parseInt(rest));
            case '*':
                return readList(Integer.parseInt(rest));
            default:
                throw new IOException("not a reply: " + line);
        }
    }

    private String readBulk(int length) throws IOException {
        if (length < 0) {
            return null;
        }
        byte[] bytes = new byte[length];
        in.readFully(bytes);
        readLine();
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private List<Object> readList(int length) throws IOException {
        if (length < 0) {
            return null;
        }
        var list = new ArrayList<Object>(length);
        for (int index = 0; index < length; index++) {
            list.add(read());
        }
        return list;
    }

    private String readLine() throws IOException {
        var line = new ByteArrayOutputStream();
        for (int octet = in.read(); octet != '\r'; octet = in.read()) {
            if (octet < 0) {
                throw new EOFException("the server closed the connection");
            }
            line.write(octet);
        }
        in.readByte();
        return line.toString(StandardCharsets.UTF_8);
    }

    @Override
    public synchronized void close() {
        try {
            if (socket != null) {
                socket.close();
            }
        } catch (IOException error) {
            // It is closed already.
        }
        socket = null;
    }
}
