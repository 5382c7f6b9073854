"""How messages leave: e-mail by Django's back end, chats and webhooks by Apprise."""
