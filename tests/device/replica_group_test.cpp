// Every implementation of a group of replicas passes these tests: another one is a line in kinds().
#include "framework/sync/replica_group.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <future>

#include "framework/sync/member_links.h"
#include "stages/group_setup.h"
#include "tests/device/nccl_stand_in.h"
#include "tests/device/streams.h"
#include "tests/device/test_device.h"
#include "tests/memory_links.h"

namespace strait::stages {
namespace {

using sync::Range;
using test_device::NcclFaults;
using test_device::Streams;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int64_t kValues = 1003;  // no multiple of a share's grain
constexpr std::size_t kMembers = 3;

struct Kind {
  std::string name;
  bool on_device = false;
  bool order_of_replicas = false;  // promises that order of a sum
};

std::vector<Kind> kinds() { return {{"shared_memory", false, true}, {"nccl", true, false}}; }

NcclFaults& nccl_faults() {
  static auto* const faults = [] {
    void* const library = dlopen(TEST_NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    auto* const get =
        reinterpret_cast<test_device::GetNcclFaults>(dlsym(library, test_device::kNcclFaults));
    return get();
  }();
  return *faults;
}

// Links between all, by member; as MemberLinks and set_up_group() take them.
std::vector<std::vector<std::unique_ptr<net::Link>>> mesh_of(std::size_t members) {
  std::vector<std::vector<std::unique_ptr<net::Link>>> mesh(members);
  for (auto& row : mesh) row.resize(members);
  for (std::uint32_t a = 0; a < members; ++a) {
    for (std::uint32_t b = a + 1; b < members; ++b) {
      std::tie(mesh[a][b], mesh[b][a]) =
          memory_links({0, a}, {0, b}, fmt::format("replica 0.{}~0.{}", a, b));
    }
  }
  return mesh;
}

struct Member {
  sync::Membership membership;
  std::vector<std::unique_ptr<net::Link>> owned;
  std::unique_ptr<sync::MemberLinks> links;
  at::Tensor gradient;
  at::Tensor host;
  at::Tensor weights = {};  // that it gathers
  GroupSetup made = {};

  std::vector<net::Link*> raw() const {
    std::vector<net::Link*> links_of;
    for (const auto& link : owned) links_of.push_back(link.get());
    return links_of;
  }
  void set_up(const GroupOptions& options) {
    host = gradient.cpu();  // the gradient itself, on the CPU
    const std::span<float> values(host.mutable_data_ptr<float>(),
                                  static_cast<std::size_t>(host.numel()));
    made = set_up_group(
        options, gradient, [&] { return values; }, raw(), membership, weights);
    links = std::make_unique<sync::MemberLinks>(std::move(owned), membership, nullptr);
  }
  sync::WhileWaiting while_waiting() {
    return [this](std::optional<std::size_t> member) { return links->check(member); };
  }
  // What the engine does with a round: run_exchange() and what follows it.
  void give(const std::vector<Range>& ranges, std::uint64_t round) {
    made.group->values_ready();
    for (const Range& range : ranges) made.group->sum(range);
    made.group->complete(while_waiting());
    confirm(round);
  }
  void gather(const std::vector<sync::Part>& parts, std::uint64_t round) {
    made.group->values_ready();
    made.group->gather(parts, while_waiting());
    confirm(round);
  }
  void confirm(std::uint64_t round) {
    const sync::RoundMessage ready{.kind = sync::RoundMessage::Kind::ready, .round = round};
    for (std::size_t other = 0; other < membership.count(); ++other) {
      if (other != membership.mine) links->send(other, sync::start_frame(ready));
    }
    for (std::size_t other = 0; other < membership.count(); ++other) {
      if (other != membership.mine) links->receive(other, ready);
    }
    made.group->arrive();
  }
};

class AnyGroup : public testing::TestWithParam<std::tuple<std::size_t, std::uint64_t>> {
 protected:
  AnyGroup() {
    test_device::set_device_count(static_cast<c10::DeviceIndex>(kMembers));
    nccl_faults().clear();
    Streams::all().begin(std::get<1>(GetParam()));
  }
  Kind kind() const { return kinds()[std::get<0>(GetParam())]; }

  GroupOptions options(std::size_t member) const {
    GroupOptions options;
    options.use = GroupOptions::Use::always;
    options.place = fmt::format("host 0, place {}", member);
    options.nccl_library = TEST_NCCL_LIBRARY;
    options.limits.setup = std::chrono::seconds(20);
    options.limits.naming = std::chrono::milliseconds(20);
    return options;
  }

  std::vector<Member> members(std::size_t count) const {
    auto mesh = mesh_of(count);
    std::vector<Member> all(count);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::uint32_t j = 0; j < count; ++j) all[i].membership.members.push_back(j);
      all[i].membership.mine = i;
      all[i].owned = std::move(mesh[i]);
      const at::Device device =
          kind().on_device ? test_device::device(static_cast<int>(i)) : at::Device(at::kCPU);
      all[i].gradient = values_of(i, 0).to(device);
    }
    return all;
  }

  // Of a member in a round.
  static at::Tensor values_of(std::size_t member, int round) {
    at::Generator generator = at::detail::createCPUGenerator(member * 100 + 7);
    return at::randn({kValues}, generator, at::kFloat) * (round + 1);
  }
  static at::Tensor sum_in_order(std::size_t count, int round) {
    at::Tensor sum = values_of(0, round);
    for (std::size_t i = 1; i < count; ++i) sum = sum + values_of(i, round);
    return sum;
  }

  // Parts with no value, with one, and with values that no member owns between them.
  static std::vector<sync::Part> parts_of(std::size_t members, int round) {
    std::vector<sync::Part> parts;
    for (const Range& range : {Range{0, 16}, {16, 17}, {17, 17}, {32, 900}, {900, kValues}}) {
      const std::size_t owner = (parts.size() + static_cast<std::size_t>(round)) % members;
      parts.push_back({static_cast<std::uint32_t>(parts.size()), owner, range});
    }
    return parts;
  }

  // On a thread for each; what they threw, or nothing, by member.
  static std::vector<std::string> on_threads(std::vector<Member>& all,
                                             const std::function<void(std::size_t)>& work) {
    std::vector<std::string> errors(all.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < all.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          work(i);
        } catch (const net::LinkError& error) {
          errors[i] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }
};

INSTANTIATE_TEST_SUITE_P(, AnyGroup,
                         testing::Combine(testing::Range(std::size_t{0}, kinds().size()),
                                          testing::Values(0, 1, 2)),
                         [](const auto& one) {
                           return fmt::format("{}_seed_{}", kinds()[std::get<0>(one.param)].name,
                                              std::get<1>(one.param));
                         });

// Ranges of no value, of one, of what shares do not divide; several at once, round after round,
// from values that the trainer's stream computes.
TEST_P(AnyGroup, SumsToSameBitsOnAllMembers) {
  const std::vector<Range> ranges = {{900, kValues}, {17, 900}, {17, 17}, {16, 17}, {0, 16}};
  for (std::size_t count = 2; count <= kMembers; ++count) {
    std::vector<Member> all = members(count);
    std::vector<std::vector<at::Tensor>> sums(count);
    const auto errors = on_threads(all, [&](std::size_t i) {
      all[i].set_up(options(i));
      for (int round = 0; round < 4; ++round) {
        all[i].gradient.copy_(values_of(i, 0).to(all[i].gradient.device()));
        all[i].gradient.mul_(round + 1);
        all[i].give(ranges, static_cast<std::uint64_t>(round));
        const at::Tensor after = all[i].gradient * 1;  // on the trainer's stream
        sums[i].push_back(after.cpu());
        all[i].made.group->watch(all[i].while_waiting());
        all[i].made.group->check();
      }
    });
    ASSERT_THAT(errors, Each(IsEmpty()));
    for (int round = 0; round < 4; ++round) {
      const auto at = static_cast<std::size_t>(round);
      const at::Tensor expected = sum_in_order(count, round);
      EXPECT_TRUE(at::allclose(sums[0][at], expected, 1e-5, 1e-5)) << "round " << round;
      EXPECT_TRUE(!kind().order_of_replicas || at::equal(sums[0][at], expected));
      for (std::size_t i = 1; i < count; ++i) EXPECT_TRUE(at::equal(sums[i][at], sums[0][at]));
    }
  }
}

TEST_P(AnyGroup, NamesMemberThatNeverComes) {
  std::vector<Member> all = members(kMembers);
  const auto errors = on_threads(all, [&](std::size_t i) {
    GroupOptions own = options(i);
    own.limits.setup = std::chrono::milliseconds(50);
    if (i != 1) all[i].set_up(own);
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("replica 1"), HasSubstr("within 0.1 s")));
  EXPECT_THAT(errors[2], HasSubstr("replica 1"));
}

TEST_P(AnyGroup, NamesBothVersionsIfTheyDiffer) {
  std::vector<Member> all = members(2);
  const auto errors = on_threads(all, [&](std::size_t i) {
    if (i == 0) return all[0].set_up(options(0));
    const std::string name = kind().on_device ? "NCCL" : "shared memory";
    all[1].raw()[0]->send(sync::write_hello({name, "2.18.3", "host 0, place 1", "", ""}));
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("replica 0"), HasSubstr("replica 1 (host 0, place 1)"),
                               HasSubstr("has 2.18.3"), HasSubstr("install the same version")));
  EXPECT_THAT(errors[0], HasSubstr(kind().on_device ? "NCCL 2.29.7" : "layout 1"));
}

TEST_P(AnyGroup, NamesMemberThatDiesBeforeItsSum) {
  std::vector<Member> all = members(kMembers);
  const auto errors = on_threads(all, [&](std::size_t i) {
    all[i].set_up(options(i));
    all[i].give({{0, 100}}, 0);
    if (i == 2) {
      all[i].links.reset();  // as a process that is killed
      return;
    }
    all[i].give({{0, 100}, {100, kValues}}, 1);
  });
  EXPECT_THAT(errors[0], HasSubstr("stage 0.2 closed its end"));
  EXPECT_THAT(errors[1], HasSubstr("stage 0.2 closed its end"));
}

// Between sums, which use the same memory, from values that the trainer's stream computes.
TEST_P(AnyGroup, GathersEachPartFromItsOwner) {
  for (std::size_t count = 2; count <= kMembers; ++count) {
    std::vector<Member> all = members(count);
    const auto errors = on_threads(all, [&](std::size_t i) {
      all[i].weights = at::zeros_like(all[i].gradient);
      all[i].set_up(options(i));
      for (int round = 0; round < 4; ++round) {
        const auto number = static_cast<std::uint64_t>(round) * 2;
        all[i].gradient.copy_(values_of(i, round));
        all[i].give({{900, kValues}, {0, 900}}, number);
        const at::Tensor sum = all[i].gradient.cpu();
        EXPECT_TRUE(at::allclose(sum, sum_in_order(count, round), 1e-5, 1e-5));
        all[i].weights.copy_(values_of(i, 0).to(all[i].weights.device()));
        all[i].weights.mul_(round + 1);
        const auto parts = parts_of(count, round);
        all[i].gather(parts, number + 1);
        at::Tensor expected = values_of(i, round);
        for (const sync::Part& part : parts) {
          expected.narrow(0, part.range.first, part.range.count())
              .copy_(values_of(part.owner, round).narrow(0, part.range.first, part.range.count()));
        }
        const at::Tensor after = all[i].weights * 1;  // on the trainer's stream
        EXPECT_TRUE(at::equal(after.cpu(), expected)) << "member " << i << ", round " << round;
        all[i].made.group->watch(all[i].while_waiting());
        all[i].made.group->check();
      }
    });
    ASSERT_THAT(errors, Each(IsEmpty()));
  }
}

TEST_P(AnyGroup, NamesMemberThatDiesBeforeItGathers) {
  std::vector<Member> all = members(kMembers);
  const auto errors = on_threads(all, [&](std::size_t i) {
    all[i].weights = at::zeros_like(all[i].gradient);
    all[i].set_up(options(i));
    all[i].give({{0, kValues}}, 0);
    if (i == 2) return all[i].links.reset();  // as a process that is killed
    all[i].gather(parts_of(kMembers, 0), 1);
  });
  EXPECT_THAT(errors[0], HasSubstr("stage 0.2 closed its end"));
  EXPECT_THAT(errors[1], HasSubstr("stage 0.2 closed its end"));
}

class NcclGroups : public AnyGroup {};

INSTANTIATE_TEST_SUITE_P(, NcclGroups,
                         testing::Combine(testing::Values(std::size_t{1}),
                                          testing::Values(0, 1, 2)));

// As an off-loaded optimizer's.
TEST_P(NcclGroups, GatherNoWeightsOfTheHost) {
  std::vector<Member> all = members(2);
  const auto errors = on_threads(all, [&](std::size_t i) {
    all[i].weights = at::zeros({kValues});
    all[i].set_up(options(i));
  });
  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("sync.share_state is true"), HasSubstr("train.offload"))));
}

// All have given their sums and said so, then one is gone while the device sums: what waits for the
// device comes back, and no process takes what it reads for a gradient.
TEST_P(NcclGroups, AreAbortedIfMemberDiesWhileDevicesSum) {
  nccl_faults().silent_rank = 2;
  std::vector<Member> all = members(kMembers);
  std::barrier given(static_cast<std::ptrdiff_t>(kMembers));
  const auto errors = on_threads(all, [&](std::size_t i) {
    all[i].set_up(options(i));
    all[i].give({{0, kValues}}, 0);
    given.arrive_and_wait();
    if (i == 2) return all[i].links.reset();
    auto engine =
        std::async(std::launch::async, [&] { all[i].made.group->watch(all[i].while_waiting()); });
    all[i].gradient.cpu();
    all[i].made.group->check();
    engine.get();
  });
  EXPECT_THAT(errors[0], HasSubstr("stage 0.2 closed its end"));
  EXPECT_THAT(errors[1], HasSubstr("stage 0.2 closed its end"));
}

TEST_P(NcclGroups, SayWhatLibraryReportsOfBrokenConnection) {
  constexpr int kSystemError = 2;
  nccl_faults().silent_rank = 1;
  std::vector<Member> all = members(2);
  const auto errors = on_threads(all, [&](std::size_t i) {
    all[i].set_up(options(i));
    all[i].give({{0, kValues}}, 0);
    if (i == 1) return;
    nccl_faults().async_error = kSystemError;
    all[i].made.group->watch(all[i].while_waiting());
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("NCCL 2.29.7 with replica 1"),
                               HasSubstr("unhandled system error (Connection refused)"),
                               HasSubstr("NCCL_DEBUG=INFO")));
}

TEST_P(NcclGroups, AreAbortedIfSumsTakeTooLong) {
  nccl_faults().silent_rank = 1;
  std::vector<Member> all = members(2);
  const auto errors = on_threads(all, [&](std::size_t i) {
    GroupOptions own = options(i);
    own.limits.sums = std::chrono::milliseconds(100);
    all[i].set_up(own);
    all[i].give({{0, kValues}}, 0);
    if (i == 0) all[i].made.group->watch(all[i].while_waiting());
  });
  EXPECT_THAT(errors[0], HasSubstr("with replica 1: sums took longer than 0.1 s"));
}

TEST_P(NcclGroups, EndSetUpThatNeverReturns) {
  nccl_faults().connects_never = true;
  std::vector<Member> all = members(2);
  const auto errors = on_threads(all, [&](std::size_t i) {
    GroupOptions own = options(i);
    own.limits.setup = std::chrono::milliseconds(200);
    all[i].set_up(own);
  });
  EXPECT_THAT(errors[0], HasSubstr("with replica 1: connecting took longer than 0.2 s"));
}

TEST_P(NcclGroups, SayWhySetUpFailed) {
  constexpr int kSystemError = 2;
  nccl_faults().connect_error = kSystemError;
  std::vector<Member> all = members(2);
  const auto errors = on_threads(all, [&](std::size_t i) { all[i].set_up(options(i)); });
  EXPECT_THAT(errors[1], HasSubstr("connecting failed: unhandled system error"));
}

// Of a run that does not insist on a group.
TEST_P(NcclGroups, LeaveSumsToLinksWhereNcclCannotBe) {
  const auto text_with = [&](const std::function<void(std::size_t, GroupOptions&)>& change) {
    std::vector<Member> all = members(2);
    const auto errors = on_threads(all, [&](std::size_t i) {
      GroupOptions own = options(i);
      own.use = GroupOptions::Use::automatic;
      change(i, own);
      all[i].set_up(own);
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
    EXPECT_EQ(all[0].made.group, nullptr);
    EXPECT_EQ(all[0].made.text, all[1].made.text);
    return all[0].made.text;
  };
  EXPECT_THAT(text_with([](std::size_t i, GroupOptions& own) {
                if (i == 1) own.nccl_library = "libnccl-that-is-not-there.so";
              }),
              AllOf(HasSubstr("summed over links: replica 1"), HasSubstr("cannot be loaded")));
  EXPECT_THAT(text_with([](std::size_t, GroupOptions& own) { own.place = "host 0, cuda:0"; }),
              HasSubstr("replicas 0 and 1 share host 0, cuda:0, and NCCL needs a device for each"));
}

TEST(GroupHello, RefusesWhatIsNone) {
  const sync::GroupHello hello{"NCCL", "2.29.7", "host 0", "", std::string("\0a", 2), "1 2 3", "4"};
  EXPECT_EQ(sync::read_hello(sync::write_hello(hello)), hello);
  net::Frame cut = sync::write_hello(hello);
  cut.pop_back();
  EXPECT_ANY_THROW(sync::read_hello(cut));
  net::Frame longer = sync::write_hello(hello);
  longer.push_back(std::byte{0});
  EXPECT_ANY_THROW(sync::read_hello(longer));
  EXPECT_ANY_THROW(sync::read_hello(sync::start_frame({sync::RoundMessage::Kind::ready})));
}

}  // namespace
}  // namespace strait::stages
