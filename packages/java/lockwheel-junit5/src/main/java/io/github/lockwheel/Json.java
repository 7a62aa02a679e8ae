// A JSON reader, so that this package has no dependencies.

package io.github.lockwheel;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Reads the JSON that the server writes, which is well-formed. */
final class Json {
    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /** A map, a list, a string, a Long, a Double, a Boolean or null. */
    static Object parse(String text) {
        return new Json(text).value();
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> object(Object value) {
        return (Map<String, Object>) value;
    }

    @SuppressWarnings("unchecked")
    static List<Object> list(Object value) {
        return (List<Object>) value;
    }

    private Object value() {
        switch (text.charAt(at)) {
            case '{':
                return object();
            case '[':
                return list();
            case '"':
                return string();
            default:
                return word();
        }
    }

    private Map<String, Object> object() {
        var object = new LinkedHashMap<String, Object>();
        for (at++; text.charAt(at) != '}'; skip(',')) {
            String name = string();
            skip(':');
            object.put(name, value());
        }
        at++;
        return object;
    }

    private List<Object> list() {
        var list = new ArrayList<Object>();
        for (at++; text.charAt(at) != ']'; skip(',')) {
            list.add(value());
        }
        at++;
        return list;
    }

    private void skip(char character) {
        if (text.charAt(at) == character) {
            at++;
        }
    }

    private String string() {
        var string = new StringBuilder();
        for (at++; text.charAt(at) != '"'; at++) {
            string.append(text.charAt(at) == '\\' ? escaped() : text.charAt(at));
        }
        at++;
        return string.toString();
    }

    private char escaped() {
        char letter = text.charAt(++at);
        switch (letter) {
            case 'n':
                return '\n';
            case 'r':
                return '\r';
            case 't':
                return '\t';
            case 'b':
                return '\b';
            case 'f':
                return '\f';
            case 'u':
                at += 4;
                return (char) Integer.parseInt(text.substring(at - 3, at + 1), 16);
            default:
                return letter;
        }
    }

    private Object word() {
        int begin = at;
        while (at < text.length() && ",]}".indexOf(text.charAt(at)) < 0) {
            at++;
        }
        String word = text.substring(begin, at);
        switch (word) {
            case "null":
                return null;
            case "true":
            case "false":
                return Boolean.valueOf(word);
            default:
                return word.matches("-?\\d+") ? (Object) Long.valueOf(word) : Double.valueOf(word);
        }
    }
}
