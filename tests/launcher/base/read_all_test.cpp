#include "launcher/base/read_all.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <future>
#include <thread>

#include "framework/file_descriptor.h"
#include "launcher/base/machine.h"

namespace strait::base {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using State = PrefixedText::State;

class Pipe {
 public:
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    output = FileDescriptor(ends[0]);
    input = FileDescriptor(ends[1]);
  }
  void put(std::string_view text) const {
    EXPECT_TRUE(write_all(input.number(), std::as_bytes(std::span(text))));
  }

  FileDescriptor output;
  FileDescriptor input;
};

TEST(WriteAll, GoesOnAfterSignal) {
  struct sigaction caught {};
  struct sigaction former {};
  caught.sa_handler = [](int) {};  // without SA_RESTART: write() returns EINTR
  ASSERT_EQ(::sigaction(SIGUSR1, &caught, &former), 0);
  const Pipe pipe;
  const std::string text(300'000, 'x');  // more than a pipe holds
  std::promise<bool> written;
  std::thread writer(
      [&] { written.set_value(write_all(pipe.input.number(), std::as_bytes(std::span(text)))); });
  for (int i = 0; i < 50; ++i) {
    ::poll(nullptr, 0, 1);
    ::pthread_kill(writer.native_handle(), SIGUSR1);
  }
  std::string read;
  std::array<char, 4096> piece{};
  while (read.size() < text.size()) {
    const ssize_t got = ::read(pipe.output.number(), piece.data(), piece.size());
    if (got > 0) read.append(piece.data(), static_cast<std::size_t>(got));
  }
  EXPECT_TRUE(written.get_future().get());
  writer.join();
  EXPECT_EQ(read, text);
  ::sigaction(SIGUSR1, &former, nullptr);
}

TEST(WriteAll, ReportsError) {
  const std::string text = "x";
  EXPECT_FALSE(write_all(-1, std::as_bytes(std::span(text))));
}

TEST(ReadLengthPrefixed, ReadsWhatLengthPrefixedMade) {
  const Pipe pipe;
  const std::string text(258, 'a');
  EXPECT_EQ(length_prefixed(text).substr(0, 4), std::string("\x02\x01\0\0", 4));
  pipe.put(length_prefixed(text) + length_prefixed("") + "rest");
  const PrefixedText first = read_length_prefixed(pipe.output.number(), 258, Clock::now() + 20s);
  EXPECT_EQ(first.state, State::whole);
  EXPECT_EQ(first.text, text);
  const PrefixedText second = read_length_prefixed(pipe.output.number(), 258, Clock::now() + 20s);
  EXPECT_EQ(second.state, State::whole);
  EXPECT_EQ(second.text, "");
}

TEST(ReadLengthPrefixed, StatesWhyThereIsNoText) {
  const Pipe pipe;
  EXPECT_EQ(read_length_prefixed(pipe.output.number(), 9, Clock::now()).state, State::timed_out);
  pipe.put(length_prefixed("one"));
  EXPECT_EQ(read_length_prefixed(pipe.output.number(), 2, Clock::now() + 20s).state,
            State::too_long);

  Pipe cut;
  cut.put(length_prefixed("whole").substr(0, 7));
  cut.input = FileDescriptor();
  const PrefixedText read = read_length_prefixed(cut.output.number(), 9, Clock::now() + 20s);
  EXPECT_EQ(read.state, State::ended);
  EXPECT_EQ(read.size, 5U);
}

TEST(MillisecondsUntil, RoundsUpAndStaysInRange) {
  EXPECT_EQ(milliseconds_until(Clock::now() - 1s), 0);
  EXPECT_GT(milliseconds_until(Clock::now() + 10s), 9000);
  EXPECT_EQ(milliseconds_until(Clock::time_point::max()), 2'147'483'647);
}

}  // namespace
}  // namespace strait::base
