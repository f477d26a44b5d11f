// For strangers.py: a program that tries to get into a run, by the links of the product itself.
//
//   stranger plain HOST:PORT COUNT                      so many ZeroMQ peers without encryption
//   stranger link HOST:PORT OWN PEER RUN GENERATION     a link, with the keys on stdin, one a line:
//                                                       the server's, the own public and secret one
//
// An empty key is a fresh one. Prints how it ended: "in" if anybody talked to it.
#include <cstdlib>
#include <iostream>
#include <zmq.hpp>

#include "framework/net/node.h"

using namespace strait::net;

namespace {

constexpr std::chrono::milliseconds kTries{1500};

void call_without_encryption(const std::string& place, int count) {
  zmq::context_t context;
  std::vector<zmq::socket_t> sockets;
  for (int i = 0; i < count; ++i) {
    sockets.emplace_back(context, zmq::socket_type::dealer);
    sockets.back().set(zmq::sockopt::linger, 0);
    sockets.back().set(zmq::sockopt::rcvtimeo, 50);
    sockets.back().connect("tcp://" + place);
    sockets.back().send(zmq::message_t(std::string(1000, 'x')), zmq::send_flags::dontwait);
  }
  const auto until = std::chrono::steady_clock::now() + kTries;
  zmq::message_t answer;
  while (std::chrono::steady_clock::now() < until) {
    for (zmq::socket_t& socket : sockets) {
      if (!socket.recv(answer, zmq::recv_flags::dontwait)) continue;
      std::cout << "in: an answer of " << answer.size() << " bytes\n";
      return;
    }
  }
  std::cout << "out\n";
}

std::string key_from(std::istream& in, const std::string& otherwise) {
  std::string key;
  std::getline(in, key);
  return key.empty() ? otherwise : key;
}

void call_with_keys(std::span<char*> words) {
  const CurveKeyPair fresh = CurveKeyPair::generate();
  LinkOptions link;
  link.name = "stranger";
  link.peer_public_key = key_from(std::cin, CurveKeyPair::generate().public_key);
  link.peer = ProcessName::parse(words[3]).value();
  link.connect_limit = kTries;
  link.hold = std::chrono::milliseconds(0);
  NodeOptions options;
  options.name = ProcessName::parse(words[2]).value();
  options.run = RunId::parse(words[4]).value();
  options.generation = static_cast<std::uint32_t>(std::strtoul(words[5], nullptr, 10));
  options.keys.public_key = key_from(std::cin, fresh.public_key);
  options.keys.secret_key = key_from(std::cin, fresh.secret_key);
  Node node(options);
  const auto end = node.connect("tcp://" + std::string(words[1]), link);
  end->send(Frame(1000, std::byte{1}));
  try {
    end->receive();
    std::cout << "in: a frame came\n";
  } catch (const LinkError& error) {
    const bool in = error.kind() == LinkError::Kind::aborted;
    std::cout << (in ? "in: " : "out: ") << error.what() << '\n';
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> words(argv + 1, argv + argc);
  if (words.size() == 3 && words[0] == std::string("plain")) {
    call_without_encryption(words[1], std::atoi(words[2]));
  } else if (words.size() == 6 && words[0] == std::string("link")) {
    call_with_keys(words);
  } else {
    std::cerr << "see the head of stranger_main.cpp\n";
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
