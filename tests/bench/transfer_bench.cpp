// Ships a file from one porter to another, over CURVE, as launcher and keeper do; started by hand
// in two network namespaces, say:
//   transfer_bench keys FILE                                     makes the keys for both
//   transfer_bench give KEYS HOST PORT FILE STORE TO [MEGABITS]  until TO, there, names FILE's content
//   transfer_bench take KEYS HOST PORT STORE                     until the giver has ended
// The giver prints one line of JSON: seconds from the order to the answer, and bytes of chunks.
#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <future>
#include <stdexcept>
#include <string>
#include <vector>

#include "framework/net/node.h"
#include "launcher/transfer/transfer_agent.h"
#include "launcher/transfer/transfer_peers.h"

namespace strait::transfer {
namespace {

constexpr std::chrono::seconds kHold{60};
const net::ProcessName kGiver = net::ProcessName::coordinator();
const net::ProcessName kTaker = net::ProcessName::keeper(0);

int number_of(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw std::invalid_argument(fmt::format("'{}' is no number", text));
  }
  return value;
}

struct BenchKeys {
  net::CurveKeyPair giver;
  net::CurveKeyPair taker;
};

void write_keys(const std::string& file) {
  std::ofstream out(file);
  for (int i = 0; i < 2; ++i) {
    const net::CurveKeyPair pair = net::CurveKeyPair::generate();
    out << pair.public_key << "\n" << pair.secret_key << "\n";
  }
}

BenchKeys read_keys(const std::string& file) {
  BenchKeys keys;
  std::ifstream in(file);
  in >> keys.giver.public_key >> keys.giver.secret_key;
  in >> keys.taker.public_key >> keys.taker.secret_key;
  return keys;
}

net::NodeOptions curve_node(const net::ProcessName& name, const net::CurveKeyPair& keys) {
  net::NodeOptions options;
  options.name = name;
  options.run = *net::RunId::parse("00112233445566778899aabbccddeeff");
  options.keys = keys;
  return options;
}

void give(const std::vector<std::string>& words) {
  const BenchKeys keys = read_keys(words[1]);
  net::Node node(curve_node(kGiver, keys.giver));
  const auto listener = node.listen({words[2], static_cast<std::uint16_t>(number_of(words[3]))});
  TransferAgentOptions options;
  options.store = words[5];
  if (words.size() == 8) options.upload_bytes_per_second = bytes_per_second(number_of(words[7]));
  TransferAgent porter(options);
  porter.join(kTaker, "the taker",
              listener->expect(transfer_link(kGiver, kTaker, kTaker, keys.taker.public_key, kHold)));
  const ChunkTable table = porter.offer(words[4]);
  // The first answer shows that the other one is there.
  try {
    porter.look(kTaker, "/nothing/here").get();
  } catch (const std::exception&) {
  }
  const auto began = std::chrono::steady_clock::now();
  auto order = porter.bring(kTaker, {table, ChunkSet::all(table.count()), words[6], {}});
  const std::uint64_t fetched = order.get();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  fmt::print("{{\"seconds\": {:.3f}, \"fetched\": {}, \"sent\": {}}}\n", took.count(), fetched,
             porter.state().sent_bytes);
}

void take(const std::vector<std::string>& words) {
  const BenchKeys keys = read_keys(words[1]);
  net::Node node(curve_node(kTaker, keys.taker));
  std::promise<void> ended;
  TransferAgentOptions options;
  options.store = words[4];
  options.takes_orders = true;
  options.on_event = [&ended](const std::string& event) {
    fmt::print(stderr, "{}\n", event);
    ended.set_value();
  };
  TransferAgent porter(options);
  porter.join(kGiver, "the giver",
              node.connect(fmt::format("tcp://{}:{}", words[2], words[3]),
                           transfer_link(kGiver, kTaker, kGiver, keys.giver.public_key, kHold)));
  ended.get_future().wait();
  fmt::print(stderr, "repeated {}\n", porter.state().repeated_bytes);
}

int call_ship_bench(const std::vector<std::string>& words) {
  if (words.size() == 2 && words[0] == "keys") {
    write_keys(words[1]);
  } else if ((words.size() == 7 || words.size() == 8) && words[0] == "give") {
    give(words);
  } else if (words.size() == 5 && words[0] == "take") {
    take(words);
  } else {
    fmt::print(stderr, "usage: see the head of transfer_bench.cpp\n");
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace strait::transfer

int main(int count, char** words) {
  try {
    return strait::transfer::call_ship_bench({words + 1, words + count});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
