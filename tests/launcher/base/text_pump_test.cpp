#include "launcher/base/text_pump.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <sstream>
#include <vector>

namespace strait::base {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// A pipe; the test reads its end.
class TextPumpTest : public testing::Test {
 protected:
  TextPumpTest() {
    if (::pipe(ends_.data()) != 0) throw std::runtime_error("no pipe");
  }
  ~TextPumpTest() override {
    close_reader();
    ::close(ends_[1]);
  }
  void close_reader() {
    if (ends_[0] >= 0) ::close(ends_[0]);
    ends_[0] = -1;
  }
  // The present content of the pipe.
  std::string drain() {
    ::fcntl(ends_[0], F_SETFL, O_NONBLOCK);
    std::string text;
    std::array<char, 4096> bytes{};
    for (ssize_t got = 0; (got = ::read(ends_[0], bytes.data(), bytes.size())) > 0;) {
      text.append(bytes.data(), static_cast<std::size_t>(got));
    }
    return text;
  }
  std::array<int, 2> ends_{};
};

TEST_F(TextPumpTest, DestructorWritesQueuedText) {
  std::string expected;
  {
    TextPump pump(ends_[1]);
    for (int i = 0; i < 1000; ++i) {
      const std::string line = "line " + std::to_string(i) + "\n";
      expected += line;
      pump.write(line, false);
    }
  }
  EXPECT_EQ(drain(), expected);
}

TEST_F(TextPumpTest, ReportsOnceThatItCannotWrite) {
  std::vector<int> errors;
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  {
    TextPump pump(full, TextPump::Form::plain, TextPump::kQueuedBytes,
                  [&](int error) { errors.push_back(error); });
    for (int i = 0; i < 100; ++i) pump.write("line\n", false);
  }
  ::close(full);
  EXPECT_THAT(errors, testing::ElementsAre(ENOSPC));
}

TEST_F(TextPumpTest, ReaderThatHasClosedIsNotReported) {
  std::vector<int> errors;
  close_reader();
  {
    TextPump pump(ends_[1], TextPump::Form::plain, TextPump::kQueuedBytes,
                  [&](int error) { errors.push_back(error); });
    pump.write("line\n", false);
  }
  EXPECT_THAT(errors, testing::IsEmpty());
}

// A writer that waited for the reader would hang this test.
TEST_F(TextPumpTest, BlockedReaderDoesNotBlockWriters) {
  TextPump pump(ends_[1], TextPump::Form::plain, 1 << 20);
  const std::string line(1000, 'x');
  for (int i = 0; i < 10'000; ++i) pump.write(line + "\n", false);
  for (int i = 0; i < 10'000; ++i) pump.write(line, true);
}

// A reader of JSON gets an object on each line, also about what it did not read.
TEST_F(TextPumpTest, WhatIsDroppedIsJsonAmongJson) {
  std::string text;
  {
    TextPump pump(ends_[1], TextPump::Form::as_json, 1000);
    const std::string big = "{\"x\":\"" + std::string(30'000, 'x') + "\"}\n";
    for (int i = 0; i < 50; ++i) pump.write(big, false);
    const auto deadline = Clock::now() + 20s;
    while (text.find("dropped") == text.npos && Clock::now() < deadline) text += drain();
  }
  text += drain();
  std::istringstream lines(text);
  int dropped = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto object = nlohmann::json::parse(line);
    dropped += object.value("lines", 0);
  }
  EXPECT_GT(dropped, 0);
  EXPECT_LT(dropped, 50);  // a piece of any size goes alone
}

TEST_F(TextPumpTest, ClosedReaderDoesNotBlockWriters) {
  close_reader();
  // The drain timeout of a second is for readers that still read. Of ten tries the fastest counts:
  // a busy machine can delay any one of them.
  auto fastest = Clock::duration::max();
  for (int i = 0; i < 10 && fastest >= 1s; ++i) {
    const auto begun = Clock::now();
    {
      TextPump pump(ends_[1]);
      for (int k = 0; k < 1000; ++k) pump.write("gone\n", false);
    }
    fastest = std::min(fastest, Clock::now() - begun);
  }
  EXPECT_LT(fastest, 1s);
}

TEST_F(TextPumpTest, NewerTextReplacesPassingText) {
  // Fill the pipe, so that everything after it waits.
  ::fcntl(ends_[1], F_SETFL, O_NONBLOCK);
  const std::string filler(4096, '.');
  while (::write(ends_[1], filler.data(), filler.size()) > 0) {
  }
  std::string text;
  {
    TextPump pump(ends_[1]);
    pump.write("kept 1\n", false);  // may be dequeued already
    for (int i = 0; i < 100; ++i) pump.write("passing " + std::to_string(i) + "|", true);
    pump.write("kept 2\n", false);
    text = drain();
  }
  text += drain();
  EXPECT_THAT(text, testing::HasSubstr("kept 1\n"));
  EXPECT_THAT(text, testing::EndsWith("kept 2\n"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("passing 50|")));
}

}  // namespace
}  // namespace strait::base
