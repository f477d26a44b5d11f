// What a link sends through shared memory: its blocks, and what a hostile or dead peer can do.
#include "framework/net/memory_transport.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <fstream>
#include <random>

#include "framework/bytes.h"
#include "tests/child_process.h"
#include "tests/framework/net/link_pair.h"

namespace strait::net {
namespace {

using testing::HasSubstr;
using Kind = LinkError::Kind;

constexpr std::size_t kBytes = 4096;

SharedMemoryKey key_of(int descriptor, std::uint64_t token = 1) {
  return {::getpid(), descriptor, token};
}

std::string refusal_of(const SharedMemoryKey& key, std::size_t bytes = kBytes) {
  const LinkError error =
      error_of([&] { SharedMemory(key, bytes, SharedMemory::Access::read).begin(); });
  EXPECT_EQ(error.kind(), Kind::refused);
  return error.what();
}

TEST(SharedMemory, IsOpenedByItsKey) {
  const SharedMemory memory(kBytes);
  memory.begin()[kBytes - 1] = std::byte{7};
  const SharedMemory opened(memory.key(), kBytes, SharedMemory::Access::read);
  EXPECT_EQ(opened.begin()[kBytes - 1], std::byte{7});
  EXPECT_EQ(SharedMemoryKey::parse(memory.key().text())->token, memory.key().token);
}

TEST(SharedMemory, AnotherTokenOrSizeIsRefused) {
  const SharedMemory memory(kBytes);
  SharedMemoryKey wrong = memory.key();
  ++wrong.token;
  EXPECT_THAT(refusal_of(wrong), HasSubstr("that of another process"));
  EXPECT_THAT(refusal_of(memory.key(), 2 * kBytes), HasSubstr("something else"));
}

// A key may name any descriptor of any process of this user. Opening one end of a pipe would show
// at the other end.
TEST(SharedMemory, NothingElseIsOpened) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_NONBLOCK), 0);
  const FileDescriptor writes(ends[1]);
  ASSERT_EQ(::close(ends[0]), 0);
  EXPECT_THAT(refusal_of(key_of(ends[1])), HasSubstr("something else"));
  const FileDescriptor unsealed(::memfd_create("strait", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(unsealed.number(), kBytes), 0);
  EXPECT_THAT(refusal_of(key_of(unsealed.number(), 0)), HasSubstr("something else"));
  EXPECT_THAT(refusal_of(key_of(-1)), HasSubstr("No such file"));
  EXPECT_THAT(refusal_of(key_of(1'000'000)), HasSubstr("No such file"));
}

// A read of bytes that are gone would end this process.
TEST(SharedMemory, OwnerCannotTakeBytesAway) {
  const SharedMemory memory(kBytes);
  const std::string file = "/proc/self/fd/" + std::to_string(memory.key().descriptor);
  const FileDescriptor again(::open(file.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(again.open());
  EXPECT_NE(::ftruncate(again.number(), 0), 0);
  EXPECT_EQ(errno, EPERM);
}

// The law: no block overlaps another one that is in use, none leaves the ring, and what room() says
// is had.
TEST(RingBlocks, NeverOverlap) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  constexpr std::uint64_t kRing = 1000;
  struct Used {
    std::uint64_t begin, bytes, end;
  };
  for (int round = 0; round < 200; ++round) {
    RingBlocks blocks(kRing);
    std::deque<Used> used;
    std::uint64_t stream = 0;
    for (int i = 0; i < 300; ++i) {
      if (const std::uint64_t room = blocks.room(); room > 0 && random() % 3 != 0) {
        const std::uint64_t bytes = random() % 4 == 0 ? room : 1 + random() % room;
        const std::uint64_t begin = blocks.take(bytes, stream += bytes);
        ASSERT_LE(begin + bytes, kRing);
        for (const Used& other : used) {
          ASSERT_TRUE(begin + bytes <= other.begin || other.begin + other.bytes <= begin);
        }
        used.push_back({begin, bytes, stream});
      } else if (random() % 50 == 0) {
        blocks.clear();
        used.clear();
      } else {
        const std::uint64_t confirmed = used.empty() ? 0 : used[random() % used.size()].end;
        blocks.confirm(confirmed);
        while (!used.empty() && used.front().end <= confirmed) used.pop_front();
      }
      if (used.empty()) {
        ASSERT_EQ(blocks.room(), kRing);
      }
    }
  }
}

MessageHeader fragment_header(const Frame& frame) {
  MessageHeader header;
  header.kind = MessageKind::fragment;
  header.run = RunId::random();
  header.frame_length = frame.size();
  header.frame_hash = hash_frame(frame);
  return header;
}

std::span<std::byte> bytes_of(zmq::message_t& message) {
  return {static_cast<std::byte*>(message.data()), message.size()};
}

class MemoryTransports : public testing::Test {
 protected:
  void introduce() {
    EXPECT_TRUE(right.accept(left.announcement()));
    EXPECT_FALSE(right.peer_reads());
    EXPECT_TRUE(left.accept(right.announcement()));
    EXPECT_TRUE(left.peer_reads());
    EXPECT_FALSE(right.accept(left.announcement()));
    EXPECT_TRUE(right.peer_reads());
  }
  zmq::message_t written(const Frame& frame) {
    zmq::message_t message;
    left.write(fragment_header(frame), frame, frame.size(), message);
    return message;
  }

  MemoryTransport left;
  MemoryTransport right;
};

TEST_F(MemoryTransports, FragmentArrivesAsItWouldOverTheConnection) {
  introduce();
  const Frame frame = numbered_frame(1, 100'000);
  zmq::message_t message = written(frame);
  EXPECT_LT(message.size(), 200u);
  const Parsed parsed = parse_message(right.resolve(bytes_of(message)));
  ASSERT_EQ(parsed.fault, WireFault::none);
  EXPECT_EQ(parsed.header.frame_length, frame.size());
  EXPECT_TRUE(std::ranges::equal(parsed.payload, frame));
}

TEST_F(MemoryTransports, OtherMessagesPass) {
  introduce();
  const Frame frame = numbered_frame(1, 128);  // as long as a reference
  EXPECT_EQ(right.resolve(frame).data(), frame.data());
  EXPECT_TRUE(right.resolve({}).empty());
}

// Whatever a reference says, it is refused or its check is wrong; AddressSanitizer and the end of
// the mapping find reads outside.
TEST_F(MemoryTransports, ReferencesThatPointElsewhereAreRefused) {
  introduce();
  zmq::message_t message = written(numbered_frame(1, 100'000));
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const std::vector<std::byte> right_one(bytes_of(message).begin(), bytes_of(message).end());
  ASSERT_EQ(parse_message(right.resolve(right_one)).fault, WireFault::none);
  const std::array<std::uint64_t, 7> edges = {0,
                                              1,
                                              MemoryTransport::kRingBytes,
                                              1 << 8,
                                              1 << 2,
                                              ~std::uint64_t{0},
                                              MemoryTransport::kRingBytes - 1};
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::byte> changed = right_one;
    const auto offset = edges.at(random() % edges.size()) - random() % 3;
    const auto bytes = static_cast<std::uint32_t>(edges.at(random() % edges.size()));
    if (i % 2 == 0) ByteWriter(std::span(changed).subspan(8)).value(offset);
    if (i % 3 == 0) ByteWriter(std::span(changed).subspan(4)).value(bytes);
    if (i % 5 == 0) changed[16 + random() % kHeaderBytes] ^= std::byte{4};
    if (changed == right_one) continue;
    EXPECT_NE(parse_message(right.resolve(changed)).fault, WireFault::none);
  }
}

TEST_F(MemoryTransports, BytesThatChangeInMemoryAreRefused) {
  introduce();
  zmq::message_t first = written(numbered_frame(1, 100'000));
  left.confirm(1, 0);  // another attempt: its blocks are used again
  zmq::message_t second = written(numbered_frame(2, 100'000));
  EXPECT_EQ(parse_message(right.resolve(bytes_of(first))).fault, WireFault::damaged);
  EXPECT_EQ(parse_message(right.resolve(bytes_of(second))).fault, WireFault::none);
}

TEST_F(MemoryTransports, NothingIsWrittenWhileTheRingIsFull) {
  std::uint64_t sent = 0;
  while (left.payload_limit(MemoryTransport::kMostPayload) > 0) {
    zmq::message_t message;
    const Frame frame(MemoryTransport::kMostPayload);
    left.write(fragment_header(frame), frame, sent += frame.size(), message);
  }
  EXPECT_GT(sent, MemoryTransport::kRingBytes / 2);
  left.confirm(0, MemoryTransport::kMostPayload - 1);
  EXPECT_EQ(left.payload_limit(MemoryTransport::kMostPayload), 0u);
  left.confirm(0, MemoryTransport::kMostPayload);
  EXPECT_EQ(left.payload_limit(MemoryTransport::kMostPayload), MemoryTransport::kMostPayload);
}

TEST_F(MemoryTransports, ReferencesOfStrangersAndForeignAnnouncementsAreRefused) {
  zmq::message_t message = written(numbered_frame(1, 100'000));
  EXPECT_TRUE(right.resolve(bytes_of(message)).empty());  // nothing was announced
  std::vector<std::byte> announcement = left.announcement();
  announcement[8] ^= std::byte{1};  // the token
  EXPECT_EQ(error_of([&] { right.accept(announcement); }).kind(), Kind::refused);
  announcement.pop_back();
  EXPECT_EQ(error_of([&] { right.accept(announcement); }).kind(), Kind::refused);
  EXPECT_TRUE(right.resolve(bytes_of(message)).empty());
}

TEST(MemoryTransport, MemoryOutlivesItsProcessWhereItIsOpenAndIsRefusedWhereNot) {
  const std::string file = testing::TempDir() + "/announcement";
  ChildProcess child([&](int ready) {
    const MemoryTransport transport;
    const std::vector<std::byte> words = transport.announcement();
    std::ofstream(file).write(reinterpret_cast<const char*>(words.data()),
                              static_cast<std::streamsize>(words.size()));
    ChildProcess::report_ready(ready);
    ::pause();
  });
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::span<const std::byte> announcement = std::as_bytes(std::span(text));
  MemoryTransport open;
  MemoryTransport late;
  EXPECT_TRUE(open.accept(announcement));
  child.kill();
  EXPECT_THROW(late.accept(announcement), LinkError);
  MemoryTransport other;
  zmq::message_t message;
  const Frame frame = numbered_frame(1, 5000);
  other.write(fragment_header(frame), frame, frame.size(), message);
  // Memory of zeros: there to be read, and not what was sent.
  EXPECT_EQ(parse_message(open.resolve(bytes_of(message))).fault, WireFault::damaged);
}

// Each connection is cut after less than the frames have.
TEST(SharedMemoryLink, ConnectionCarriesReferencesOnly) {
  EndSetup setup;
  setup.shared_memory = true;
  const auto pair = make_zmq_pair(setup, setup, false, {.delay = std::chrono::milliseconds(1)});
  pair->left->send(numbered_frame(0, 10));
  EXPECT_EQ(pair->right->receive(), numbered_frame(0, 10));
  while (!pair->left->state().in_memory || !pair->right->state().in_memory) {
    std::this_thread::yield();
  }
  pair->path->cut_each_after(400'000);
  for (int i = 1; i < 20; ++i) {
    pair->left->send(numbered_frame(i, 200'000));
    pair->right->send(numbered_frame(-i, 200'000));
    ASSERT_EQ(pair->right->receive(), numbered_frame(i, 200'000));
    ASSERT_EQ(pair->left->receive(), numbered_frame(-i, 200'000));
  }
  EXPECT_EQ(pair->left->state().reconnects, 0u);
  EXPECT_GE(pair->right->state().received_bytes, 3'800'000u);
}

// It cannot open memory of this one.
TEST(SharedMemoryLink, PeerOfAnotherUserUsesTheConnectionAndSaysWhy) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can become another user";
  EndSetup setup;
  setup.shared_memory = true;
  const RunId run = RunId::random();
  const CurveKeyPair left_keys = CurveKeyPair::generate();
  const CurveKeyPair right_keys = CurveKeyPair::generate();
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const FileDescriptor reads(pipe[0]);
  const FileDescriptor writes(pipe[1]);
  const ChildProcess child([&](int ready) {
    constexpr uid_t kOther = 54321;
    if (::setuid(kOther) != 0) throw std::runtime_error("no other user");
    ChildProcess::report_ready(ready);
    std::string endpoint;
    for (char letter = 0; ::read(reads.number(), &letter, 1) == 1 && letter != '\n';) {
      endpoint += letter;
    }
    Node node(node_options(kLeft, run, left_keys));
    const auto link = node.connect(endpoint, link_options(setup, kRight, right_keys.public_key));
    link->send(link->receive());
    while (link->state().memory_problem.empty()) std::this_thread::yield();
    const std::string why = link->state().memory_problem;
    Frame words;
    append_bytes(words, std::as_bytes(std::span(why)));
    link->send(std::move(words));
    ::pause();
  });
  Node node(node_options(kRight, run, right_keys));
  const auto listener = node.listen({});
  const auto link = listener->expect(link_options(setup, kLeft, left_keys.public_key));
  const std::string endpoint = listener->endpoint() + "\n";
  ASSERT_GT(::write(writes.number(), endpoint.data(), endpoint.size()), 0);
  link->send(numbered_frame(1, 200'000));
  EXPECT_EQ(link->receive(), numbered_frame(1, 200'000));
  const Frame words = link->receive();
  const std::string why(reinterpret_cast<const char*>(words.data()), words.size());
  EXPECT_THAT(why, HasSubstr("shared memory cannot be opened: Permission denied"));
  EXPECT_FALSE(link->state().in_memory);
}

TEST(SharedMemoryLink, OneEndWithoutMemoryUsesTheConnection) {
  EndSetup shares;
  shares.shared_memory = true;
  for (const bool plaintext : {false, true}) {
    const auto pair = make_zmq_pair(shares, plaintext ? shares : EndSetup(), plaintext);
    pair->left->send(numbered_frame(1, 200'000));
    pair->right->send(numbered_frame(2, 200'000));
    EXPECT_EQ(pair->right->receive(), numbered_frame(1, 200'000));
    EXPECT_EQ(pair->left->receive(), numbered_frame(2, 200'000));
    EXPECT_FALSE(pair->left->state().in_memory);
    EXPECT_FALSE(pair->right->state().in_memory);
  }
}

}  // namespace
}  // namespace strait::net
