// Accepts the connections of a server.
#ifndef MUSTER_COMMON_NETWORK_ACCEPTOR_H_
#define MUSTER_COMMON_NETWORK_ACCEPTOR_H_

#include <functional>
#include <thread>
#include <vector>

namespace muster {

// Accepts connections on a thread of its own. When the process has run out of file descriptors, it
// continues once some are free again.
class Acceptor {
 public:
  // Owns `sockets`, which listen.
  explicit Acceptor(std::vector<int> sockets);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  const std::vector<int>& sockets() const { return sockets_; }
  // `on_connection` gets the socket that accepted a connection, and the connection, which is
  // nonblocking and which it owns. `on_tick` is called after connections were accepted, and as long
  // as it returns true, but once in 5 ms at most.
  void Start(
      std::function<void(int socket, int connection)> on_connection,
      std::function<bool()> on_tick = [] { return false; });
  // Stops accepting and closes the sockets. Idempotent.
  void Stop();

 private:
  void Run();
  // Accepts one connection.
  void Accept(int socket);

  std::vector<int> sockets_;
  const int stop_;  // eventfd
  std::function<void(int, int)> on_connection_;
  std::function<bool()> on_tick_;
  std::thread thread_;
};

}  // namespace muster

#endif  // MUSTER_COMMON_NETWORK_ACCEPTOR_H_
