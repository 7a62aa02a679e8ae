# frozen_string_literal: true

# The servers, as the environment names them.
module Servers
  # A server that is flushed belongs to one test. This is the assignment of REDIS_SERVERS to tests.
  OF_A_FORGETFUL_ONE = 0..0

  module_function

  # The one that most tests share.
  def main
    ENV.fetch('REDIS_URL')
  end

  # Some of those that may be ended.
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
