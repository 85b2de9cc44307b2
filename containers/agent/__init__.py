"""What runs inside a sandbox: the runner, its forwarder and the engines. Standard library only, Python 3.9
syntax."""
