#include <gtest/gtest.h>

#include <atomic>
#include <fstream>

#include "launcher/base/errors.h"
#include "tests/launcher/hosts/transfer_rig.h"
#include "tests/memory_links.h"

namespace strait::transfer {
namespace {

using Random = std::mt19937_64;

// A link whose receiver gets damaged chunks, and that is cut after some frames.
class BadLink : public net::InboxLink {
 public:
  using Time = std::chrono::steady_clock::time_point;

  BadLink(std::unique_ptr<net::Link> link, std::uint64_t seed)
      : link_(std::move(link)), random_(seed) {
    frames_ = random_() % 60;
  }

  bool send_until(net::Frame& frame, std::chrono::steady_clock::time_point deadline) override {
    return link_->send_until(frame, deadline);
  }
  net::Frame receive() override { return std::move(*receive_until(Time::max())); }
  std::optional<net::Frame> receive_until(Time deadline) override {
    auto received = link_->receive_until(deadline);
    if (!received) return received;
    net::Frame& frame = *received;
    if (frames_-- == 0) {
      link_->abort(net::LinkError(net::LinkError::Kind::aborted, "cut by the test"));
    }
    const auto chunk = static_cast<std::byte>(message::Message(message::Chunk{}).index());
    if (frame.front() == chunk && random_() % 16 == 0) {
      frame[random_() % frame.size()] ^= std::byte{1};
    }
    return received;
  }
  void on_arrival(std::function<void()> notify) override {
    dynamic_cast<net::InboxLink&>(*link_).on_arrival(std::move(notify));
  }
  bool flush(std::chrono::steady_clock::time_point deadline) override {
    return link_->flush(deadline);
  }
  void abort(const net::LinkError& cause) override { link_->abort(cause); }
  net::LinkState state() const override { return link_->state(); }

 private:
  std::unique_ptr<net::Link> link_;
  Random random_;
  std::uint64_t frames_ = 0;  // until it is cut
};

void link_badly(TransferHost& left, TransferHost& right, Random& random) {
  auto [at_left, at_right] = memory_links(left.name, right.name, "ship");
  left.agent->add_peer(right.name, right.name.text(),
                       std::make_unique<BadLink>(std::move(at_left), random()));
  right.agent->add_peer(left.name, left.name.text(),
                        std::make_unique<BadLink>(std::move(at_right), random()));
}

void damage(const std::filesystem::path& path, std::uint64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(byte ^ 1));
}

class TransferLaw : public testing::TestWithParam<std::uint64_t> {};

// Files, chunks, cuts, damaged chunks and damaged sources at random: where a fetch succeeds, the
// file equals the source, and where it fails, it says why in a sentence.
TEST_P(TransferLaw, DestinationEqualsSourceOrTheFetchFails) {
  Random random(GetParam());
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  TransferAgentOptions options;
  options.stall_timeout = std::chrono::seconds(1);
  TransferRig rig(2, options);
  TransferHost& host = *rig.hosts[0];
  const std::string bytes = random_bytes(below(8 * kMebibyte), random());
  const auto source = rig.launcher.directory / "source";
  ScratchDirectory::write(source, bytes);
  const ChunkTable table = rig.launcher.agent->offer(source);
  auto first = rig.launcher.agent->fetch_on(rig.hosts[1]->name,
                                            all_of(table, rig.hosts[1]->directory / "file"));
  get_soon(first);
  const auto there = host.directory / "there";
  int attempts = 0;
  for (bool good = false; !good; ++attempts) {
    good = attempts == 8;  // nothing goes wrong in the last one
    if (good) {
      TransferRig::link(rig.launcher, host);
      TransferRig::link(*rig.hosts[1], host);
    } else {
      link_badly(rig.launcher, host, random);
      link_badly(*rig.hosts[1], host, random);
    }
    ScratchDirectory::write(source, bytes);
    rig.launcher.agent->offer(source);
    if (!good && !bytes.empty() && below(4) == 0) damage(source, below(bytes.size()));
    const auto from = below(2) == 0 ? std::nullopt : std::optional(rig.hosts[1]->name);
    auto fetch = rig.launcher.agent->fetch_on(host.name, all_of(table, there), from);
    try {
      get_soon(fetch);
      EXPECT_TRUE(ScratchDirectory::read(there) == bytes) << "attempt " << attempts;
      if (good || below(2) == 0) break;
      std::filesystem::remove_all(host.directory / "content");
      host.stop();
      host.start();
    } catch (const base::UserError& error) {
      EXPECT_FALSE(good) << error.what();
      EXPECT_GT(std::string(error.what()).size(), 10U);
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
  EXPECT_TRUE(ScratchDirectory::read(there) == bytes);
}

INSTANTIATE_TEST_SUITE_P(Seeds, TransferLaw, testing::Range<std::uint64_t>(1, 25));

}  // namespace
}  // namespace strait::transfer
