// The sockets over which workers command a shim: see protocol.h.
#ifndef MUSTER_WORKER_SHIM_RANK_WORKER_SOCKETS_H_
#define MUSTER_WORKER_SHIM_RANK_WORKER_SOCKETS_H_

#include <functional>
#include <list>
#include <string>
#include <string_view>

#include "common/files/owned_fd.h"

namespace muster::shim {

// A worker that is too slow to read a few short lines gets the rest from the exit record.
class WorkerSockets {
 public:
  struct Events {
    // Watches a new socket; returns whether that succeeded.
    std::function<bool(int fd)> watch;
    // A worker has connected; returns the lines that it receives first.
    std::function<std::string()> on_connected;
    // Returns the answer.
    std::function<std::string_view(std::string_view command)> on_command;
    // A worker has disconnected.
    std::function<void()> on_disconnected;
  };

  // `control_fd` is the socket of a connected worker, or -1.
  WorkerSockets(int control_fd, Events events);

  // Listens on kSocketFile in the current directory. False with errno set.
  bool Open();
  // Whether a worker is connected.
  bool connected() const { return !connections_.empty(); }
  // Accepts or reads once. Without effect for other descriptors.
  void OnReadable(int fd);
  // Executes all commands that have arrived.
  void ReadAll();
  // Sends the line to all workers; nothing if it is empty.
  void Broadcast(std::string_view line) const;

 private:
  struct Connection {
    OwnedFd socket;
    std::string input;
  };

  void Accept();
  // Reads once; returns whether there may be more to read.
  bool ReadCommands(std::list<Connection>::iterator connection);
  void Disconnect(std::list<Connection>::iterator connection);

  const Events events_;
  OwnedFd listener_;
  std::list<Connection> connections_;
};

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_RANK_WORKER_SOCKETS_H_
