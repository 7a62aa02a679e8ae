# frozen_string_literal: true
# The servers from environment variables.

module Servers
  # The server of REDIS_SERVERS that only one test uses, since it flushes its scripts.
  OF_SCRIPT_FLUSH = 0..0

  module_function

  # The server that most tests share.
  def main
    ENV.fetch('REDIS_URL')
  end

  # Some of the servers that a test may stop.
  def disposable(which)
    ENV.fetch('REDIS_SERVERS').split(',')[which]
  end

  # A host and a port, or nil where there is no such server.
  def optional(variable)
    url = ENV.fetch(variable, '')
    return if url.empty?

    uri = URI.parse(url)
    { host: uri.host, port: uri.port }
  end

  # A name that no other test uses, in this run of the suite or an earlier one.
  def unique(prefix)
    "#{prefix}:#{SecureRandom.hex(8)}"
  end
end
