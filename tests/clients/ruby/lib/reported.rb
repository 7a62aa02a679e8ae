# frozen_string_literal: true
# The report of the suite.

require 'json'

# Tests that name the behaviour they show, and report it.
module Reported
  def self.included(test_case)
    test_case.extend(Naming)
  end

  # How a test is written.
  module Naming
    def behaviours
      @behaviours ||= {}
    end

    def behaviour(sentence, &test)
      name = "test_#{sentence.gsub(/\W+/, '_')}"
      raise "twice: #{sentence}" if behaviours.key?(name)

      behaviours[name] = sentence
      define_method(name, &test)
    end
  end

  def after_teardown
    super
    path = ENV.fetch('SUITE_REPORT', '')
    return if path.empty?

    line = { library: library, version: version, behaviour: self.class.behaviours.fetch(name) }
    line[:outcome] = outcome
    line[:reason] = failure.message.lines.first.chomp if failure
    # One write, so that lines of tests that end together do not mix.
    File.open(path, 'a') { |file| file.syswrite("#{line.to_json}\n") }
  end

  private

  def outcome
    return 'skipped' if skipped?

    failure ? 'failed' : 'passed'
  end
end
